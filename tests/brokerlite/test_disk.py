"""The disk under storage: files by their paths, within a bound of descriptors, for many threads at once."""

import os
import random
import resource
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from ottla.brokerlite.storage.disk import Disk, FileSystem, Locked
from ottla.codec.wire import Unread, Unreadable
from tests.brokerlite.machine import Machine, a_batch, producing
from tests.brokerlite.model_disk import Killed, ModelDisk
from tests.patience import HUNG


def open_descriptors(below: Path) -> int:
    links = []
    for name in os.listdir("/proc/self/fd"):
        try:
            links.append(os.readlink(f"/proc/self/fd/{name}"))
        except FileNotFoundError:
            continue
    return sum(link.startswith(str(below)) for link in links)


needs_proc = pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="asks Linux which files are open")


# -- descriptors


@needs_proc
def test_no_more_files_are_kept_open_than_the_bound(tmp_path: Path) -> None:
    disk = FileSystem(5)
    paths = [tmp_path / str(i) for i in range(20)]
    for path in paths:
        disk.write(path, 0, path.name.encode())
        assert open_descriptors(tmp_path) <= 5
    assert [disk.read(path, 10, 0) for path in paths] == [path.name.encode() for path in paths]
    assert open_descriptors(tmp_path) == 5
    disk.close()
    assert open_descriptors(tmp_path) == 0


@needs_proc
def test_removed_and_renamed_files_hold_no_descriptor(tmp_path: Path) -> None:
    disk = FileSystem(100)
    folder = tmp_path / "t-0"
    disk.make_folder(folder)
    for name in "abc":
        disk.write(folder / name, 0, b"old")
    disk.unlink(folder / "a")
    assert open_descriptors(tmp_path) == 2
    disk.write(folder / "new", 0, b"new")
    disk.rename(folder / "new", folder / "b")
    assert disk.read(folder / "b", 9, 0) == b"new"
    disk.rename(folder, tmp_path / "gone")
    assert open_descriptors(tmp_path) == 0
    assert disk.read(tmp_path / "gone" / "c", 9, 0) == b"old"
    disk.remove_tree(tmp_path / "gone")
    assert open_descriptors(tmp_path) == 0


def serve_many_partitions(folder: Path) -> None:
    machine = Machine(folder)
    machine.core.create_topic("t", 60, {})
    for partition in range(60):
        for _ in range(2):
            answer = machine.ask(producing(a_batch(bytes(3000)), partition=partition))
            assert answer.responses[0].partition_responses[0].error_code == 0


def write_many_files(folder: Path) -> None:
    disk = FileSystem(1000)
    folder.mkdir()
    paths = [folder / str(name) for name in range(200)]
    for path in paths:
        disk.write(path, 0, path.name.encode())
    assert [disk.read(path, 9, 0) for path in paths] == [path.name.encode() for path in paths]


@pytest.mark.parametrize("work", [serve_many_partitions, write_many_files])
def test_there_may_be_more_files_than_descriptors(tmp_path: Path, work: Callable[[Path], None]) -> None:
    """In a process that may have 40, whatever this one has open."""
    few = "import resource as r; r.setrlimit(r.RLIMIT_NOFILE, (40, r.getrlimit(r.RLIMIT_NOFILE)[1]))"
    call = f"from pathlib import Path; from {__name__} import {work.__name__} as work; work(Path('{tmp_path}/data'))"
    done = subprocess.run([sys.executable, "-c", f"{few}; {call}"], capture_output=True, text=True, timeout=HUNG)
    assert done.returncode == 0, done.stderr


@needs_proc
def test_half_of_the_descriptors_that_the_process_may_have_are_for_files(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
    disk = FileSystem()
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    for name in range(100):
        disk.write(tmp_path / str(name), 0, b"x")
    assert open_descriptors(tmp_path) == 32
    disk.close()


def test_a_file_is_not_closed_under_a_thread_that_uses_it(tmp_path: Path) -> None:
    disk = FileSystem(2)
    paths = [tmp_path / str(i) for i in range(8)]
    for path in paths:
        disk.write(path, 0, path.name.encode() * 5000)
    wrong: list[object] = []

    def read(seed: int) -> None:
        rng = random.Random(seed)
        try:
            for _ in range(400):
                path = rng.choice(paths)
                if rng.random() < 0.1:
                    disk.sync(path)
                elif (data := disk.read(path, 5000, 0)) != path.name.encode() * 5000:
                    wrong.append((path, data))
        except OSError as error:
            wrong.append(error)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


# -- the file system and its model


@pytest.fixture(params=["files", "model"])
def disk(request: pytest.FixtureRequest) -> Disk:
    return FileSystem(3) if request.param == "files" else ModelDisk()


def test_both_disks_do_the_same(disk: Disk, tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    disk.make_folder(folder)
    disk.make_folder(folder)
    file = folder / "file"
    for missing in (disk.read_file, disk.size):
        with pytest.raises(FileNotFoundError):
            missing(file)
    with pytest.raises(FileNotFoundError):
        disk.read(file, 1, 0)
    disk.unlink(file)
    disk.sync(file)
    disk.sync_folder(folder / "gone")
    disk.remove_tree(folder / "gone")
    disk.write(file, 2, memoryview(b"0123456789"))
    disk.truncate(file, 8)
    disk.write_file(folder / "other", b"whole")
    disk.write_file(folder / "other", b"new")
    assert disk.read_file(file) == b"\0\x00012345" and disk.size(file) == 8
    assert disk.read(file, 3, 3) == b"123" and bytes(disk.range(file, 3, 5)) == b"345"
    assert disk.read(file, 3, 8) == b""
    disk.sync(file)
    disk.sync_folder(folder)
    assert sorted(disk.names(folder)) == ["file", "other"]
    disk.rename(folder / "other", file)
    assert disk.names(folder) == ["file"] and disk.read_file(file) == b"new"
    assert disk.exists(file) and not disk.is_folder(file) and disk.is_folder(folder)
    disk.rename(folder, folder.with_name("c"))
    assert not disk.exists(folder) and disk.read(folder.with_name("c") / "file", 9, 0) == b"new"
    release = disk.lock(tmp_path / ".lock", "me\n")
    with pytest.raises(Locked) as locked:
        disk.lock(tmp_path / ".lock", "somebody\n")
    assert locked.value.holder == "me"
    release()
    disk.lock(tmp_path / ".lock", "somebody\n")()
    disk.remove_tree(folder.with_name("c"))
    assert sorted(disk.names(tmp_path / "a")) == []
    with pytest.raises(FileExistsError):
        disk.make_folder(tmp_path / ".lock")
    disk.close()


def test_the_model_keeps_what_was_synced_and_any_mixture_of_the_rest() -> None:
    found: set[tuple[bytes | None, bytes | None]] = set()
    for seed in range(300):
        disk = ModelDisk(random.Random(seed))
        folder = Path("/data")
        disk.make_folder(folder)
        disk.sync_folder(Path("/"))
        disk.write(folder / "a", 0, b"old")
        disk.sync(folder / "a")
        disk.sync_folder(folder)
        disk.write(folder / "a", 0, b"new")
        disk.write(folder / "b", 0, b"b")
        disk.power_cut()
        a, b = (disk.read_file(path) if disk.exists(path := folder / name) else None for name in "ab")
        found.add((a, b))
    assert found == {(a, b) for a in (b"old", b"new") for b in (None, b"", b"\0", b"b")}


def test_a_crash_of_the_model_keeps_all_that_was_written_and_a_part_of_the_last() -> None:
    found = set()
    for seed in range(50):
        disk = ModelDisk(random.Random(seed))
        disk.write(Path("/a"), 0, b"first")
        disk.kill_at = disk.operations + 1
        with pytest.raises(Killed):
            disk.write(Path("/a"), 5, b"second")
        with pytest.raises(Killed):
            disk.read_file(Path("/a"))
        disk.crash()
        found.add(disk.read_file(Path("/a")))
    assert found == {b"first" + b"second"[:n] for n in range(7)}


# -- ranges


def test_a_range_is_sent_read_and_taken_off_and_outlives_its_file(tmp_path: Path) -> None:
    disk = FileSystem()
    disk.write(tmp_path / "file", 0, b"0123456789")
    one = disk.range(tmp_path / "file", 8, 1)
    assert isinstance(one, Unread) and len(one) == 8 and bytes(one) == b"12345678"
    disk.unlink(tmp_path / "file")
    assert one.take(3) == b"123" and bytes(one) == b"45678"
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert one.send(ours.fileno()) == 5 and theirs.recv(9) == b"45678"
    assert not one and one.take(1) == b""


def test_a_range_whose_file_became_shorter_is_an_error_and_no_endless_loop(tmp_path: Path) -> None:
    disk = FileSystem()
    disk.write(tmp_path / "file", 0, b"0123456789")
    ours, theirs = socket.socketpair()
    with ours, theirs:
        one = disk.range(tmp_path / "file", 8, 2)
        assert isinstance(one, Unread)
        disk.truncate(tmp_path / "file", 4)
        assert one.send(ours.fileno()) == 2
        for work in (lambda: one.send(ours.fileno()), lambda: one.take(1), lambda: bytes(one)):
            with pytest.raises(Unreadable, match="shorter"):
                work()


def test_ranges_that_are_held_keep_few_files_open(tmp_path: Path) -> None:
    disk = FileSystem(descriptors=8)
    for i in range(20):
        disk.write(tmp_path / str(i), 0, b"%02d" % i)
    held = [disk.range(tmp_path / str(i), 2, 0) for i in range(20)]
    assert [isinstance(each, Unread) for each in held] == [True] * 2 + [False] * 18
    assert [bytes(each) for each in held] == [b"%02d" % i for i in range(20)]
    del held
    assert isinstance(disk.range(tmp_path / "7", 2, 0), Unread), "they are not held any more"
