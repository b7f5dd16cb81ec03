"""`ottla dump`: the bytes of Kafka's files and connections, readable.

Rules:
- A file is read in pieces, and what is held of it does not grow with it.
- What can be read is on stdout before it is said, on stderr, what cannot. With ``--json`` that is on stdout too.
- The next batch, frame or file is read also if one was broken or is not there; the exit code tells that one was. Only
  where nothing tells where the next one begins, a file is given up.
"""

import errno
import io
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from ottla.cli import exits
from ottla.cli.lines import as_json
from ottla.errors import ConfigurationError

if TYPE_CHECKING:
    from ottla.codec.dump import Item, Options

EXAMPLE = "Example: ottla dump flights-0/00000000000000000000.log --offset 4711 --count 3"


class FileType(StrEnum):
    """What a file holds, by its usual name."""

    LOG = "log"
    INDEX = "index"
    TIMEINDEX = "timeindex"
    TXNINDEX = "txnindex"
    SNAPSHOT = "snapshot"
    LEADER_EPOCHS = "leader-epoch-checkpoint"
    OFFSETS = "offset-checkpoint"
    PARTITION_METADATA = "partition.metadata"
    META_PROPERTIES = "meta.properties"
    LOG_07 = "log-0.7"


_ENDINGS = {
    ".log": FileType.LOG,
    ".checkpoint": FileType.LOG,  # a snapshot of KRaft
    ".index": FileType.INDEX,
    ".timeindex": FileType.TIMEINDEX,
    ".txnindex": FileType.TXNINDEX,
    ".snapshot": FileType.SNAPSHOT,
    "leader-epoch-checkpoint": FileType.LEADER_EPOCHS,
    "-offset-checkpoint": FileType.OFFSETS,
    "partition.metadata": FileType.PARTITION_METADATA,
    "meta.properties": FileType.META_PROPERTIES,
    ".kafka": FileType.LOG_07,
    ".jafka": FileType.LOG_07,
}
_SAY = f"say --type {', '.join(FileType)}, or --request, or --response API:VERSION"
_SET_ASIDE = (".deleted", ".cleaned", ".swap")
"""What a broker adds to the names of files that it is about to remove or put in place."""
_FOLDER = re.compile(r"(?P<topic>.+)-\d+(\.[0-9a-f]+-(delete|stray|future))?")
"""Of a partition."""
_BASE_OFFSET = re.compile("[0-9]{20}")
_COUNTED = {"record", "entry", "producer", "leader_epoch", "offset", "request", "response"}
"""Kinds of items that ``--count`` counts; batches too, where their records are not shown."""
_PIECE = 2**20
_LARGE = 16 * 2**20
"""Bytes of a file for which progress is shown."""

Reader = Callable[[Iterable[bytes], "Options"], Iterator["Item"]]


def dump(
    files: Annotated[
        list[str], typer.Argument(metavar="FILE", help="What to read: a file, all of a folder, or - for stdin.")
    ],
    file_type: Annotated[
        FileType | None, typer.Option("--type", help="What the files hold; by default their names tell.")
    ] = None,
    request: Annotated[bool, typer.Option("--request", help="They hold what a client has sent: frames.")] = False,
    response: Annotated[
        str | None,
        typer.Option(metavar="API:VERSION", help="They hold what a broker has sent in answer to, say, Fetch:12."),
    ] = None,
    topic: Annotated[
        str | None, typer.Option(metavar="TOPIC", help="Whose log it is; by default the folder's name tells.")
    ] = None,
    offset: Annotated[int, typer.Option(min=0, help="Begin with this offset (logs and indexes).")] = 0,
    count: Annotated[int | None, typer.Option(min=1, help="End after so many records, entries or frames.")] = None,
    no_records: Annotated[bool, typer.Option("--no-records", help="Show batches without their records.")] = False,
    deep: Annotated[
        bool, typer.Option("--deep", help="Take apart what members of a group tell each other, too.")
    ] = False,
    raw: Annotated[
        bool, typer.Option("--raw", help="Do not take apart the records of internal topics and control records.")
    ] = False,
    full: Annotated[bool, typer.Option("--full", help="Do not cut long keys and values.")] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Print each item as a line of JSON; bytes that are not UTF-8 as …_base64.")
    ] = False,
) -> None:
    """Show what is in Kafka's files (logs, indexes, snapshots, checkpoints) and in captured frames.

    Records of internal topics, such as __consumer_offsets, are shown as what they mean. Where a batch or a frame is
    broken, what stands before is shown, then which byte is the first broken one, and why; then the next one.
    """
    from ottla.codec.dump import Options

    with exits.reported():
        reader = _reader(file_type, request, response)
        names = [name for each in files for name in _named(each, anything=reader is not None)]
        form = _Form(json=json, full=full, files=len(names))
        counted = _COUNTED | ({"batch"} if no_records else set())
        options = partial(Options, start=offset, records=not no_records, deep=deep, raw=raw)

        def show(name: str) -> bool:
            source = _Source(name, reader or _readers()[_told_by(name)])
            whose = source.topic if topic is None else topic
            return _dump_one(source, options(topic=whose, base_offset=source.base_offset), form, count, counted)

        failed = 0
        try:
            for name in names:
                failed += not _tried(show, name, alone=len(names) == 1)
        except BrokenPipeError:
            exits.leave_broken_pipe()
        except KeyboardInterrupt:
            raise typer.Exit(exits.INTERRUPTED) from None
    if failed:
        raise typer.Exit(exits.FAILED)


# ---------------------------------------------------------------------------------------------------------------------
# What to read, and how.


@dataclass(frozen=True, slots=True)
class _Source:
    """A file, or stdin, and what reads it."""

    name: str
    reader: Reader

    @property
    def base_offset(self) -> int | None:
        """The offset in the name of a segment and of what lies beside it."""
        number = Path(self.name).name.partition(".")[0]
        return int(number) if _BASE_OFFSET.fullmatch(number) else None

    @property
    def topic(self) -> str:
        """As the folder tells."""
        folder = _FOLDER.fullmatch(Path(self.name).absolute().parent.name) if self.name != "-" else None
        return folder["topic"] if folder else ""

    @contextmanager
    def opened(self) -> Iterator[BinaryIO]:
        """Its bytes.

        Raises:
            ConfigurationError: it cannot be read.
        """
        if self.name == "-":
            if sys.stdin is None:
                raise ConfigurationError("stdin is closed: name a file")
            yield sys.stdin.buffer
            return
        try:
            file = open(self.name, "rb")  # noqa: SIM115 # so that only its opening is guarded
        except OSError as error:
            raise ConfigurationError(f"cannot read {self.name}: {(error.strerror or str(error)).lower()}") from None
        with file:
            yield file


def _named(name: str, *, anything: bool) -> list[str]:
    """The files that an argument names: itself, or those in it and below if it is a folder.

    Args:
        anything: also those whose names do not tell what they hold.

    Raises:
        ConfigurationError: there is none in the folder.
    """
    if name == "-" or not os.path.isdir(name):
        return [name]
    found, left_out = list[str](), list[str]()
    for folder, folders, files in os.walk(name):
        folders.sort()
        for path in (os.path.join(folder, each) for each in sorted(files)):
            if os.path.isfile(path):
                (found if anything or _type_of(path) else left_out).append(path)
    if not found:
        raise ConfigurationError(f"{name} is a folder, and no file in it has a name that tells what it holds: {_SAY}")
    if left_out:
        typer.echo(f"ottla: left out, as their names do not tell what they hold: {', '.join(left_out)}", err=True)
    return found


def _reader(file_type: FileType | None, request: bool, response: str | None) -> Reader | None:
    """What reads the files, if an option says it.

    Raises:
        ConfigurationError: two options say different things, or one what there is not.
    """
    from ottla.codec import dump as dumps

    if request + (response is not None) + (file_type is not None) > 1:
        raise ConfigurationError("--type, --request and --response exclude each other: give one")
    if request:
        return dumps.dump_requests
    if response is not None:
        api_key, version = _api(response)
        return partial(dumps.dump_responses, api_key=api_key, version=version)
    return None if file_type is None else _readers()[file_type]


def _readers() -> dict[FileType, Reader]:
    from ottla.codec import dump as dumps

    return {
        FileType.LOG: dumps.dump_segment,
        FileType.INDEX: dumps.dump_offset_index,
        FileType.TIMEINDEX: dumps.dump_time_index,
        FileType.TXNINDEX: dumps.dump_transaction_index,
        FileType.SNAPSHOT: dumps.dump_snapshot,
        FileType.LEADER_EPOCHS: dumps.dump_leader_epochs,
        FileType.OFFSETS: dumps.dump_offsets,
        FileType.PARTITION_METADATA: dumps.dump_partition_metadata,
        FileType.META_PROPERTIES: dumps.dump_properties,
        FileType.LOG_07: dumps.dump_segment_07,
    }


def _type_of(name: str) -> FileType | None:
    """What the name of a file tells that it holds."""
    base = Path(name).name
    for suffix in _SET_ASIDE:
        base = base.removesuffix(suffix)
    return next((file_type for ending, file_type in _ENDINGS.items() if base.endswith(ending)), None)


def _told_by(name: str) -> FileType:
    """The same.

    Raises:
        ConfigurationError: there is no such file, or its name tells nothing.
    """
    if (file_type := _type_of(name)) is None:
        if name != "-" and not os.path.exists(name):
            raise ConfigurationError(f"cannot read {name}: {os.strerror(errno.ENOENT).lower()}")
        what = "stdin has no name" if name == "-" else f"the name of {name} does not tell what it holds"
        raise ConfigurationError(f"{what}: {_SAY}")
    return file_type


def _api(text: str) -> tuple[int, int]:
    """The key and the version in ``Fetch:12`` or ``1:12``."""
    from ottla.codec.apis import APIS, NAMES
    from ottla.codec.wire import api

    name, _, number = text.partition(":")
    keys = [key for key, known in NAMES.items() if name.lower() in (known.lower(), str(key))]
    if not keys:
        raise ConfigurationError(f"--response {text}: {name!r} is no API: say one such as Fetch:12 or 1:12")
    versions = api(APIS[keys[0]].response).versions
    if not re.fullmatch("[0-9]{1,5}", number) or int(number) not in versions:
        known = NAMES[keys[0]]
        raise ConfigurationError(
            f"--response {text}: {known} has versions {versions.text}: say one, as in {known}:{versions.high}"
        )
    return keys[0], int(number)


# ---------------------------------------------------------------------------------------------------------------------
# Reading and writing.


@dataclass(frozen=True, slots=True)
class _Form:
    """How items are written.

    Attributes:
        files: how many there are; of several, each item tells its own.
    """

    json: bool
    full: bool
    files: int

    def heading(self, name: str) -> bytes:
        return b"" if self.json or self.files == 1 else b"== %s ==\n" % os.fsencode(name)

    def lines(self, name: str) -> "Callable[[Item], bytes]":
        """What makes of an item of a file its line, or lines."""
        from ottla.codec.dump import text

        if not self.json:
            return lambda item: b"%s\n" % text(item, full=self.full).encode()
        file = {"file": os.fsencode(name)} if self.files > 1 else {}
        return lambda item: b"%s\n" % as_json(**file, kind=item.kind, **item.fields)


class _Output:
    """stdout, written to in large steps."""

    def __init__(self) -> None:
        if sys.stdout is None:
            raise exits.BadInput("stdout is closed")
        self._stdout = sys.stdout.buffer
        self._lines: list[bytes] = []
        self._size = 0

    def write(self, line: bytes) -> None:
        self._lines.append(line)
        self._size += len(line)
        if self._size >= _PIECE:
            self.flush()

    def flush(self) -> None:
        """Nothing is held back while input is waited for."""
        lines, self._lines, self._size = self._lines, [], 0
        self._stdout.write(b"".join(lines))
        self._stdout.flush()


def _tried(show: Callable[[str], bool], name: str, *, alone: bool) -> bool:
    """What ``show`` says of a file; one that cannot be read ends the command only if it is ``alone``."""
    try:
        return show(name)
    except ConfigurationError as error:
        if alone:
            raise
        typer.echo(f"ottla: {error}", err=True)
        return False


def _dump_one(source: _Source, options: "Options", form: _Form, count: int | None, counted: set[str]) -> bool:
    """Print a file; whether all of it could be read."""
    from ottla.codec.dump import BROKEN, text

    with source.opened() as file, _progress(file) as advance:
        output, left, whole, line = _Output(), count, True, form.lines(source.name)
        output.write(form.heading(source.name))
        for item in source.reader(_pieces(file, output, advance), options):
            if item.kind != BROKEN or form.json:
                output.write(line(item))
            if item.kind == BROKEN:
                whole = False
                output.flush()
                name = "stdin" if source.name == "-" else source.name
                typer.echo(f"ottla: {name} is broken\n{text(item)}", err=True)
            elif left is not None and item.kind in counted:
                left -= 1
                if left == 0:
                    break
    output.flush()
    return whole


def _pieces(file: BinaryIO, output: _Output, advance: Callable[[int], None]) -> Iterator[bytes]:
    raw = io.FileIO(file.fileno(), closefd=False)
    # Made once: while memory for each read is made, Ctrl-C would be noticed only when the read has ended.
    buffer = memoryview(bytearray(_PIECE))
    while True:
        output.flush()
        count = raw.readinto(buffer)  # what is there, where a pipe brings little at a time
        if not count:
            return
        yield bytes(buffer[:count])
        advance(count)


@contextmanager
def _progress(file: BinaryIO) -> Iterator[Callable[[int], None]]:
    """Shows how much of a large file has been read, where somebody watches who does not see the output itself."""
    size = os.fstat(file.fileno()).st_size
    if size < _LARGE or sys.stderr is None or not sys.stderr.isatty() or sys.stdout.isatty():
        yield lambda size: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=size)
        yield lambda done: progress.advance(task, done)
