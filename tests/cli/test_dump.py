"""`ottla dump`: every kind of file, errors in broken ones, and its use with pipes and terminals."""

import base64
import json
import os
import pty
import shutil
import signal
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ottla.cli import exits
from ottla.cli.commands import app
from ottla.cli.dump import _ENDINGS, FileType
from ottla.codec import frames
from ottla.codec.records import BatchBuilder, rebased
from tests.cli import program
from tests.codec.recorded import WIRE, exchanges
from tests.patience import HUNG

FILES = sorted(
    path
    for pattern in ("*/*/*", "*/*/*/*.log", "stored/*-checkpoint", "stored/meta.properties")
    for path in WIRE.glob(pattern)
    if path.name.endswith(tuple(_ENDINGS))
)
PLAIN = WIRE / "segments" / "plain-0" / "00000000000000000000.log"
OFFSETS = WIRE / "stored" / "__consumer_offsets-0" / "00000000000000000000.log"


def dump(*arguments: str | Path) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, ["dump", *map(str, arguments)], catch_exceptions=False)
    return result.exit_code, result.stdout, result.stderr


def items(*arguments: str | Path) -> list[dict[str, Any]]:
    code, out, err = dump("--json", *arguments)
    assert (code, err) == (0, "")
    return [json.loads(line) for line in out.splitlines()]


# ---------------------------------------------------------------------------------------------------------------------
# Output.


def test_every_recorded_file_is_dumped_whole() -> None:
    endings = {ending for ending in _ENDINGS if any(path.name.endswith(ending) for path in FILES)}
    assert endings == {*_ENDINGS} - {".kafka"}
    for arguments in ([], ["--json", "--deep"], ["--raw", "--full", "--no-records"]):
        code, out, err = dump(*arguments, *FILES)
        assert (code, err) == (0, "")
        assert out


def test_several_files_are_told_apart() -> None:
    _, out, _ = dump(PLAIN, PLAIN.with_suffix(".index"))
    assert out.startswith(f"== {PLAIN} ==\nbatch at 0: offsets 0-")
    assert f"== {PLAIN.with_suffix('.index')} ==\noffset " in out
    files = Counter(item["file"] for item in items(PLAIN, PLAIN.with_suffix(".index")))
    assert set(files) == {str(PLAIN), str(PLAIN.with_suffix(".index"))}
    assert "file" not in items(PLAIN)[0]


def test_a_file_whose_name_is_not_utf8_is_dumped_with_its_name_as_base64(tmp_path: Path) -> None:
    builder = BatchBuilder()
    builder.append(0, b"k", b"v")
    for name in (b"a.log", b"b\xff.log", b"c.log"):
        Path(os.fsdecode(os.fsencode(tmp_path) + b"/" + name)).write_bytes(builder.build())
    shown = [each for each in items(tmp_path) if each["kind"] == "record"]
    files = [each["file"] if "file" in each else base64.b64decode(each["file_base64"]) for each in shown]
    assert files == [f"{tmp_path}/a.log", os.fsencode(tmp_path) + b"/b\xff.log", f"{tmp_path}/c.log"]


def test_a_log_is_shown_from_an_offset_and_for_so_many_records() -> None:
    shown = items(PLAIN, "--offset", "5", "--count", "3")
    assert [item["offset"] for item in shown if item["kind"] == "record"] == [5, 6, 7]
    assert [item["kind"] for item in items(PLAIN, "--no-records", "--count", "2")] == ["batch", "batch"]
    record = next(item for item in items(WIRE / "segments" / "txn-0" / PLAIN.name) if item["kind"] == "record")
    assert record == {
        "kind": "record",
        "offset": 0,
        "timestamp": 1795261630536,
        "key": "c1",
        "value": "committed 1",
        "headers": [],
    }


def test_the_records_of_internal_topics_are_told_by_their_folder(tmp_path: Path) -> None:
    assert items(OFFSETS)[1]["type"] == "GroupMetadata"
    shutil.copy(OFFSETS, tmp_path / OFFSETS.name)
    assert "type" not in items(tmp_path / OFFSETS.name, "--count", "1")[1]
    assert items(tmp_path / OFFSETS.name, "--topic", "__consumer_offsets")[1]["type"] == "GroupMetadata"
    assert "key_base64" not in items(OFFSETS)[1] and "value" in items(OFFSETS)[1]
    assert "type" not in items(OFFSETS, "--raw", "--count", "1")[1]
    stray = tmp_path / "__consumer_offsets-7.0123456789abcdef-delete"
    stray.mkdir()
    shutil.copy(OFFSETS, stray / f"{OFFSETS.name}.deleted")
    assert items(stray / f"{OFFSETS.name}.deleted")[1]["type"] == "GroupMetadata"


def test_deep_takes_apart_what_members_tell_each_other() -> None:
    assert "subscription_base64" in _member(items(OFFSETS))
    assert _member(items(OFFSETS, "--deep"))["subscription"]["topics"] == ["plain"]


def _member(shown: list[dict[str, Any]]) -> dict[str, Any]:
    """The first member of a group."""
    members = (item["value"]["members"] for item in shown if item.get("type") == "GroupMetadata" and item["value"])
    found: dict[str, Any] = next(each[0] for each in members if each)
    return found


def test_long_values_are_cut_unless_they_shall_not_be(tmp_path: Path) -> None:
    builder = BatchBuilder()
    builder.append(0, None, b"x" * 500)
    (tmp_path / "a.log").write_bytes(builder.build())
    assert "… (300 more characters)" in dump(tmp_path / "a.log")[1]
    assert "x" * 500 in dump(tmp_path / "a.log", "--full")[1]


def test_a_capture_of_requests_tells_what_they_are(tmp_path: Path) -> None:
    (tmp_path / "c2s").write_bytes(b"".join(frames.framed(each.request) for each in exchanges("Metadata")[:9]))
    _, out, err = dump("--request", tmp_path / "c2s")
    assert err == ""
    assert out.startswith("request at 0: Metadata (key 3) v0, correlation id ")
    assert len(items("--request", tmp_path / "c2s", "--count", "4")) == 4


@pytest.mark.parametrize("api", ["Fetch:4", "fetch:4", "1:4"])
def test_a_capture_of_responses_must_be_told_what_it_is(tmp_path: Path, api: str) -> None:
    answers = [each.response for each in exchanges("Fetch") if each.version == 4 and each.response is not None]
    assert answers
    (tmp_path / "s2c").write_bytes(b"".join(map(frames.framed, answers)))
    shown = items("--response", api, tmp_path / "s2c")
    assert len(shown) == len(answers)
    partitions = [p for item in shown for topic in item["message"]["responses"] for p in topic["partitions"]]
    assert any(batch["records"] for partition in partitions for batch in partition["records"]["batches"])
    bare = items("--response", api, tmp_path / "s2c", "--no-records")
    assert "records" not in json.dumps([b for i in bare for b in i["message"]["responses"]]).replace('"records": {', "")


# ---------------------------------------------------------------------------------------------------------------------
# Unreadable files.


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nosuch.log"], "cannot read nosuch.log: no such file or directory"),
        (["nosuch.txt"], "cannot read nosuch.txt: no such file or directory"),
        (["/etc/passwd"], "the name of /etc/passwd does not show its type: use --type log, index, "),
        (["-"], "stdin has no name: use --type log, "),
        (["--request", "--type", "log", "x.log"], "exclude each other"),
        (["--response", "Fetch", "x"], "Fetch has versions 0-18: use one, as in Fetch:18"),
        (["--response", "Fetch:99", "x"], "Fetch has versions 0-18: use one, as in Fetch:18"),
        (["--response", "Fetch:\u0664", "x"], "Fetch has versions 0-18"),
        (["--response", f"Fetch:{'4' * 5000}", "x"], "Fetch has versions 0-18"),
        (["--response", "Fetsch:1", "x"], "'Fetsch' is not an API: use one such as Fetch:12 or 1:12"),
    ],
    ids=" ".join,
)
def test_a_mistake_of_the_user_is_one_line_that_says_what_to_do(arguments: list[str], says: str) -> None:
    code, out, err = dump(*arguments)
    assert (code, out) == (exits.WRONG_USE, "")
    assert err.startswith("ottla: ") and err.count("\n") == 1
    assert says in err


def test_the_types_are_named_after_the_files() -> None:
    assert set(_ENDINGS.values()) == set(FileType)


def test_a_folder_without_anything_to_dump_is_said_to_be_one(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("Dear")
    code, out, err = dump(tmp_path)
    assert (code, out) == (exits.WRONG_USE, "")
    assert err.startswith(f"ottla: {tmp_path} is a folder, and no file in it has a name that shows its type: use ")


def test_all_of_a_folder_is_dumped_but_what_has_another_name(tmp_path: Path) -> None:
    shutil.copytree(PLAIN.parent, tmp_path / "plain-0")
    (tmp_path / "plain-0" / "letter.txt").write_text("Dear")
    code, out, err = dump(tmp_path)
    assert code == 0
    shown = [line for line in out.splitlines() if line.startswith("== ")]
    assert shown == sorted(f"== {path} ==" for path in (tmp_path / "plain-0").iterdir() if path.suffix != ".txt")
    assert err == f"ottla: skipped, as their names do not show their type: {tmp_path}/plain-0/letter.txt\n"
    assert dump("--type", "log", tmp_path)[0] == exits.FAILED, "with --type, the file is read"


def test_a_file_that_is_not_there_does_not_keep_the_others_from_being_dumped(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("Dear")
    code, out, err = dump(tmp_path / "nosuch.log", tmp_path / "letter.txt", PLAIN)
    assert code == exits.FAILED
    assert out.startswith(f"== {PLAIN} ==\nbatch at 0")
    first, second = err.splitlines()
    assert first == f"ottla: cannot read {tmp_path}/nosuch.log: no such file or directory"
    assert second.startswith(f"ottla: the name of {tmp_path}/letter.txt does not show its type")


def test_a_broken_batch_is_reported_and_the_next_ones_are_shown(tmp_path: Path) -> None:
    data = bytearray(PLAIN.read_bytes())
    starts = [item["at"] for item in items(PLAIN) if item["kind"] == "batch"]
    data[starts[1] + 16] = 9
    (tmp_path / "good.log").write_bytes(data[: starts[1]])
    (tmp_path / "bad.log").write_bytes(data)
    code, out, err = dump(tmp_path / "bad.log", tmp_path / "good.log")
    assert code == exits.FAILED
    shown = [int(line.split(":")[0].removeprefix("batch at ")) for line in out.splitlines() if line.startswith("batch")]
    assert shown == [starts[0], *starts[2:], 0], "the next batches and the next file are still read"
    assert err.splitlines()[:5] == [
        f"ottla: {tmp_path / 'bad.log'} is damaged",
        f"  first broken byte: {starts[1] + 16} (0x{starts[1] + 16:x})",
        f"  within: batch at {starts[1]}",
        "  field: magic",
        "  problem: record format (magic) 9 instead of 0, 1 or 2",
    ]
    assert "[09]" in err
    code, out, err = dump("--json", tmp_path / "bad.log")
    [told] = [each for each in map(json.loads, out.splitlines()) if each["kind"] == "broken"]
    assert (code, told["at"], told["path"]) == (exits.FAILED, starts[1] + 16, "magic")


def test_a_wrong_checksum_does_not_blame_a_byte(tmp_path: Path) -> None:
    data = bytearray(PLAIN.read_bytes())
    [_, second, third, *_] = [item["at"] for item in items(PLAIN) if item["kind"] == "batch"]
    data[third - 1] ^= 1
    (tmp_path / "bad.log").write_bytes(data)
    code, _, err = dump("--no-records", tmp_path / "bad.log")
    at = second + 17
    assert code == exits.FAILED
    assert f"  wrong checksum: at byte {at} (0x{at:x}): any byte that it covers may be wrong\n" in err
    assert "first broken byte" not in err


def test_a_dump_ends_and_says_so_where_nothing_tells_where_the_next_batch_begins(tmp_path: Path) -> None:
    data = bytearray(PLAIN.read_bytes())
    starts = [item["at"] for item in items(PLAIN) if item["kind"] == "batch"]
    data[starts[1] + 8 : starts[1] + 12] = b"\xff" * 4
    (tmp_path / "bad.log").write_bytes(data)
    code, out, err = dump("--no-records", tmp_path / "bad.log")
    assert code == exits.FAILED
    assert out.count("batch at") == 1
    assert err.endswith("  the rest: not read, because it is unknown where the next batch begins\n")


@pytest.mark.slow
def test_a_segment_broken_anywhere_is_dumped_without_a_traceback(tmp_path: Path) -> None:
    data = (WIRE / "segments" / "logappend-0" / PLAIN.name).read_bytes()
    path = tmp_path / "a.log"
    for at in range(0, len(data), 3):  # tests/codec/test_dump.py covers every byte
        for damaged in (data[:at], data[:at] + bytes((data[at] ^ 0x55,)) + data[at + 1 :]):
            path.write_bytes(damaged)
            code, _, err = dump("--json", path)
            assert (code, bool(err)) in ((0, False), (exits.FAILED, True))


# ---------------------------------------------------------------------------------------------------------------------
# Pipes, terminals, signals.


def big(path: Path, size: int) -> Path:
    """A segment of so many bytes."""
    builder = BatchBuilder()
    for number in range(1000):
        builder.append(1_700_000_000_000 + number, b"key", bytes(100))
    batch = builder.build()
    with path.open("wb") as file:
        for number in range(size // len(batch) + 1):
            file.write(rebased(batch, number * 1000, 0))
    return path


def test_stdin_is_read_as_it_comes() -> None:
    done = program.run("dump", "--type", "log", "--count", "1", "-", given=PLAIN.read_bytes())
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.startswith(b"batch at 0: ")
    with program.running("dump", "--type", "log", "--json", "-") as running:
        data = PLAIN.read_bytes()
        size = 12 + int.from_bytes(data[8:12], "big")
        running.give(data[:size])
        assert running.facts()["kind"] == "batch"  # more lines may follow


def test_a_reader_that_goes_away_ends_it_quietly(tmp_path: Path) -> None:
    path = big(tmp_path / "a.log", 2 * 2**20)
    command = " ".join(program.COMMAND)
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command} dump {path} | head -1"],
        capture_output=True,
        timeout=HUNG,
    )
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.slow
def test_an_interrupt_ends_it_with_130(tmp_path: Path) -> None:
    with program.running("dump", "--type", "log", "--json", "-") as running:
        running.give(PLAIN.read_bytes())
        running.line()
        code, err, _ = running.end(signal.SIGINT)
    assert (code, err) == (exits.INTERRUPTED, b"")


@pytest.mark.slow
def test_a_disk_that_is_full_is_one_line() -> None:
    command = " ".join(program.COMMAND)
    done = subprocess.run(["bash", "-c", f"{command} dump {PLAIN} > /dev/full"], capture_output=True, timeout=HUNG)
    assert done.returncode == exits.FAILED
    assert done.stderr == b"ottla: cannot write to stdout: no space left on device\n"


@pytest.mark.slow
def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    small, large = big(tmp_path / "small.log", 2**20), big(tmp_path / "large.log", 64 * 2**20)
    peaks = []
    for path in (small, large):
        arguments = [*program.COMMAND, "dump", "--no-records", str(path)]
        code = (
            f"import resource, subprocess; subprocess.run({arguments!r}, stdout=subprocess.DEVNULL);"
            "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
        )
        out = subprocess.run([program.COMMAND[0], "-c", code], capture_output=True, text=True, timeout=HUNG).stdout
        peaks.append(int(out))
    assert peaks[1] - peaks[0] < 8 * 2**10, "kilobytes"


@pytest.mark.slow
@pytest.mark.parametrize(("size", "shown"), [(20 * 2**20, True), (2**20, False)])
def test_progress_is_shown_on_a_terminal_for_a_large_file_only(tmp_path: Path, size: int, shown: bool) -> None:
    path = big(tmp_path / "a.log", size)
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*program.COMMAND, "dump", "--no-records", str(path)],
        stdout=subprocess.DEVNULL,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm"},
    )
    os.close(theirs)
    said = b""
    while chunk := _read(ours):
        said += chunk
    assert process.wait(HUNG) == 0
    assert (b"MB" in said) == shown


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # the error with which Linux reports that the other side is closed
        return b""
