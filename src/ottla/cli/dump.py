"""`ottla dump`: shows the bytes of Kafka's files and connections in readable form.

Rules:
- A file is read in pieces, so memory does not grow with its size.
- Output on stdout comes before the error on stderr that follows it. With ``--json`` errors are on stdout, too.
- After a damaged batch or frame, or a missing file, the next one is read; the exit code shows the error. A file is
  given up only if the start of the next batch cannot be found.
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
from ottla.cli.escapes import tell, writing
from ottla.cli.lines import as_json
from ottla.errors import ConfigurationError

if TYPE_CHECKING:
    from ottla.codec.dump import DumpOptions, Item

EXAMPLE = "Example: ottla dump flights-0/00000000000000000000.log --offset 4711 --count 3"


class FileType(StrEnum):
    """The contents of a file, under its usual name."""

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
    ".checkpoint": FileType.LOG,  # KRaft's snapshots
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
_SAY = f"use --type {', '.join(FileType)}, or --request, or --response API:VERSION"
_SET_ASIDE = (".deleted", ".cleaned", ".swap")
"""Suffixes that a broker adds to files that it is about to remove or put in place."""
_FOLDER = re.compile(r"(?P<topic>.+)-\d+(\.[0-9a-f]+-(delete|stray|future))?")
"""The folder of a partition."""
_BASE_OFFSET = re.compile("[0-9]{20}")
_COUNTED = {"record", "entry", "producer", "leader_epoch", "offset", "request", "response"}
"""Kinds of items that ``--count`` counts; batches too, if their records are not shown."""
_PIECE = 2**20
_LARGE = 16 * 2**20
"""Bytes from which a file gets a progress bar."""

Reader = Callable[[Iterable[bytes], "DumpOptions"], Iterator["Item"]]


def dump(
    files: Annotated[
        list[str], typer.Argument(metavar="FILE", help="The files to read: a file, a whole folder, or - for stdin.")
    ],
    file_type: Annotated[
        FileType | None, typer.Option("--type", help="Type of the files; default: by their names.")
    ] = None,
    request: Annotated[bool, typer.Option("--request", help="The files contain frames from a client.")] = False,
    response: Annotated[
        str | None,
        typer.Option(
            metavar="API:VERSION", help="The files contain frames from a broker: responses to Fetch:12, for example."
        ),
    ] = None,
    topic: Annotated[
        str | None, typer.Option(metavar="TOPIC", help="The log's topic; default: by the folder's name.")
    ] = None,
    offset: Annotated[int, typer.Option(min=0, help="Begin at this offset (logs and indexes).")] = 0,
    count: Annotated[
        int | None, typer.Option(min=1, help="Stop after this number of records, entries or frames.")
    ] = None,
    no_records: Annotated[bool, typer.Option("--no-records", help="Show batches without their records.")] = False,
    deep: Annotated[
        bool, typer.Option("--deep", help="Decode the subscriptions and assignments of group members, too.")
    ] = False,
    raw: Annotated[
        bool, typer.Option("--raw", help="Do not decode the records of internal topics and control records.")
    ] = False,
    full: Annotated[bool, typer.Option("--full", help="Do not shorten long keys and values.")] = False,
    json: Annotated[
        bool, typer.Option("--json", help="Print each item as a line of JSON; bytes that are not UTF-8 as …_base64.")
    ] = False,
) -> None:
    """Show the contents of Kafka's files (logs, indexes, snapshots, checkpoints) and of captured frames.

    Records of internal topics, such as __consumer_offsets, are decoded. If a batch or a frame is damaged, the intact
    part is shown, then the position of the first damaged byte and the reason; then the next batch or frame.
    """
    from ottla.codec.dump import DumpOptions

    with exits.reported():
        reader = _reader(file_type, request, response)
        names = [name for each in files for name in _named(each, anything=reader is not None)]
        form = _Form(json=json, full=full, files=len(names))
        counted = _COUNTED | ({"batch"} if no_records else set())
        options = partial(DumpOptions, start=offset, records=not no_records, deep=deep, raw=raw)

        def show(name: str) -> bool:
            source = _DumpedFile(name, reader or _readers()[_told_by(name)])
            whose = source.topic if topic is None else topic
            return _dump_one(source, options(topic=whose, base_offset=source.base_offset), form, count, counted)

        failed = 0
        try:
            with exits.interruptible():
                for name in names:
                    failed += not _tried(show, name, alone=len(names) == 1)
        except BrokenPipeError:
            exits.drop_output()
    if failed:
        raise typer.Exit(exits.FAILED)


# ---------------------------------------------------------------------------------------------------------------------
# What to read, and how.


@dataclass(frozen=True, slots=True)
class _DumpedFile:
    """A file, or stdin, and its reader."""

    name: str
    reader: Reader

    @property
    def base_offset(self) -> int | None:
        """The offset in the name of a segment's files."""
        number = Path(self.name).name.partition(".")[0]
        return int(number) if _BASE_OFFSET.fullmatch(number) else None

    @property
    def topic(self) -> str:
        """The topic in the folder's name."""
        folder = _FOLDER.fullmatch(Path(self.name).absolute().parent.name) if self.name != "-" else None
        return folder["topic"] if folder else ""

    @contextmanager
    def opened(self) -> Iterator[BinaryIO]:
        """Open the file.

        Raises:
            ConfigurationError: it cannot be read.
        """
        if self.name == "-":
            if sys.stdin is None:
                raise ConfigurationError("stdin is closed: name a file")
            yield sys.stdin.buffer
            return
        try:
            file = open(self.name, "rb")  # noqa: SIM115 # so that only errors of opening are caught
        except OSError as error:
            raise ConfigurationError(f"cannot read {self.name}: {(error.strerror or str(error)).lower()}") from None
        with file:
            try:
                yield file
            except BrokenPipeError:  # of stdout
                raise
            except OSError as error:
                raise ConfigurationError(f"cannot read {self.name}: {(error.strerror or str(error)).lower()}") from None


def _named(name: str, *, anything: bool) -> list[str]:
    """The files that an argument means: itself, or all files below it if it is a folder.

    Args:
        anything: include files whose names do not show their type.

    Raises:
        ConfigurationError: the folder has no such file.
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
        raise ConfigurationError(f"{name} is a folder, and no file in it has a name that shows its type: {_SAY}")
    if left_out:
        tell(f"ottla: skipped, as their names do not show their type: {', '.join(left_out)}", err=True)
    return found


def _reader(file_type: FileType | None, request: bool, response: str | None) -> Reader | None:
    """The reader of the files, if an option chooses it.

    Raises:
        ConfigurationError: options contradict each other, or one is invalid.
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
    """The type that a file's name shows."""
    base = Path(name).name
    for suffix in _SET_ASIDE:
        base = base.removesuffix(suffix)
    return next((file_type for ending, file_type in _ENDINGS.items() if base.endswith(ending)), None)


def _told_by(name: str) -> FileType:
    """The type that a file's name shows.

    Raises:
        ConfigurationError: there is no such file, or its name does not show its type.
    """
    if (file_type := _type_of(name)) is None:
        if name != "-" and not os.path.exists(name):
            raise ConfigurationError(f"cannot read {name}: {os.strerror(errno.ENOENT).lower()}")
        what = "stdin has no name" if name == "-" else f"the name of {name} does not show its type"
        raise ConfigurationError(f"{what}: {_SAY}")
    return file_type


def _api(text: str) -> tuple[int, int]:
    """Parse an API's key and version, as in ``Fetch:12`` or ``1:12``."""
    from ottla.codec.apis import APIS, NAMES
    from ottla.codec.wire import api

    name, _, number = text.partition(":")
    keys = [key for key, known in NAMES.items() if name.lower() in (known.lower(), str(key))]
    if not keys:
        raise ConfigurationError(f"--response {text}: {name!r} is not an API: use one such as Fetch:12 or 1:12")
    versions = api(APIS[keys[0]].response).versions
    if not re.fullmatch("[0-9]{1,5}", number) or int(number) not in versions:
        known = NAMES[keys[0]]
        raise ConfigurationError(
            f"--response {text}: {known} has versions {versions.text}: use one, as in {known}:{versions.high}"
        )
    return keys[0], int(number)


# ---------------------------------------------------------------------------------------------------------------------
# Reading and writing.


@dataclass(frozen=True, slots=True)
class _Form:
    """How items are written.

    Attributes:
        files: the number of files; if there are several, each item names its file.
    """

    json: bool
    full: bool
    files: int

    def heading(self, name: str) -> bytes:
        return b"" if self.json or self.files == 1 else b"== %s ==\n" % os.fsencode(name)

    def lines(self, name: str) -> "Callable[[Item], bytes]":
        """A function that turns an item of a file into its line or lines."""
        from ottla.codec.dump import text

        if not self.json:
            return lambda item: b"%s\n" % text(item, full=self.full).encode()
        file = {"file": os.fsencode(name)} if self.files > 1 else {}
        return lambda item: b"%s\n" % as_json(**file, kind=item.kind, **item.fields)


class _Output:
    """stdout, written in large blocks."""

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
        """Write everything, so that no line is held back while the command waits for input."""
        lines, self._lines, self._size = self._lines, [], 0
        with writing("stdout"):
            self._stdout.write(b"".join(lines))
            self._stdout.flush()


def _tried(show: Callable[[str], bool], name: str, *, alone: bool) -> bool:
    """Show a file; returns whether it is intact. An unreadable one ends the command only if it is ``alone``."""
    try:
        return show(name)
    except ConfigurationError as error:
        if alone:
            raise
        tell(f"ottla: {error}", err=True)
        return False


def _dump_one(source: _DumpedFile, options: "DumpOptions", form: _Form, count: int | None, counted: set[str]) -> bool:
    """Print a file; returns whether all of it could be read."""
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
                tell(f"ottla: {name} is damaged", *text(item).split("\n"), err=True)
            elif left is not None and item.kind in counted:
                left -= 1
                if left == 0:
                    break
    output.flush()
    return whole


def _pieces(file: BinaryIO, output: _Output, advance: Callable[[int], None]) -> Iterator[bytes]:
    raw = io.FileIO(file.fileno(), closefd=False)
    # Allocated once: allocating for each read would delay Ctrl-C until the read has ended.
    buffer = memoryview(bytearray(_PIECE))
    while True:
        output.flush()
        count = raw.readinto(buffer)  # a pipe brings little at a time
        if not count:
            return
        yield bytes(buffer[:count])
        advance(count)


@contextmanager
def _progress(file: BinaryIO) -> Iterator[Callable[[int], None]]:
    """Show how much of a large file has been read, if stderr is a terminal and the output goes elsewhere."""
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
