"""`ottla produce`: sends lines as records."""

import errno
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ottla.cli import exits, stdio
from ottla.cli.exits import BadInput
from ottla.cli.lines import InputRecord, as_json, parse_json, parse_separator, parse_text
from ottla.cli.numbers import counted
from ottla.cli.options import CompressionName, Connect, Partitioner, at_cluster
from ottla.errors import EncodeError, MessageTooLarge, OttlaError, RecordTooLarge

if TYPE_CHECKING:
    from ottla.sdk.client import Client
    from ottla.sdk.producer import Producer

_GRACE = 0.4
"""Seconds after a signal for lines that are read, but not yet accepted; accepted records have the producer's time."""
_CHECK = 5.0
"""Seconds to find out whether the topic exists, at most."""

EXAMPLE = "Example: printf 'a:1\\nb:2\\n' | ottla produce numbers --key-separator :"


@at_cluster
async def produce(
    connect: Connect,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic to write to.")],
    file: Annotated[Path | None, typer.Option("--file", "-f", help="Read lines from a file, not from stdin.")] = None,
    key_separator: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Lines are KEY, this text, VALUE; \\t is a tab.")
    ] = None,
    as_json_: Annotated[
        bool,
        typer.Option(
            "--json",
            help='Lines are JSON: {"value": …, "key": …, "headers": {…}, "partition": 0}, or value_base64; '
            "the summary is JSON, too.",
        ),
    ] = False,
    receipts: Annotated[
        bool, typer.Option("--receipts", help="Wait for each record, and print its partition and offset as JSON.")
    ] = False,
    partitioner: Annotated[
        Partitioner, typer.Option(help="How keys map to partitions: murmur2 as in Java, crc32 as in librdkafka.")
    ] = Partitioner.MURMUR2,
    compression: Annotated[
        CompressionName, typer.Option(help="The compression of batches, in requests and on disk.")
    ] = CompressionName.NONE,
) -> None:
    """Send lines from stdin or a file as records, and wait until the broker has stored them all.

    If the broker creates the topic for them, stderr says so.
    """
    import trio

    if as_json_ and key_separator is not None:
        raise typer.BadParameter('JSON lines have their key in "key"', param_hint="--key-separator")
    separator = parse_separator(key_separator)
    if separator == b"":
        raise typer.BadParameter("is empty", param_hint="--key-separator")
    parse = parse_json if as_json_ else lambda line: parse_text(line, separator)

    source = await trio.to_thread.run_sync(_open, file, abandon_on_cancel=True)  # opening a pipe waits for a writer
    typed = os.isatty(source)
    if typed:
        await stdio.say("each line that you type is a record; Ctrl-D ends", err=True)
    sent = _Sent()
    try:
        async with connect() as client:
            is_new = await _is_missing(client, topic)
            async with (
                client.producer(compression=compression, partitioner=partitioner) as producer,
                aclosing(stdio.lines(source, "stdin" if file is None else str(file))) as lines,
            ):
                # The progress would overwrite the line that is being typed.
                with nullcontext(_ignored) if typed else _shown_progress() as progress:
                    await _send_all(producer, topic, lines, parse, receipts, sent, progress)
            if is_new and sent.count:
                await stdio.say(
                    f"{topic} did not exist: the broker has created it{await _size(client, topic)}", err=True
                )
    except trio.Cancelled as stopped:
        notes = "; ".join(getattr(stopped, "__notes__", ()))
        if notes:
            exits.say_last(f"ottla: stopped by a signal: {notes}")
        elif sent.count and not receipts:
            exits.say_last(_summary(sent.count, topic))
        raise
    finally:
        if file is not None:
            os.close(source)
    if as_json_ and not receipts:
        await stdio.write(as_json(topic=topic, records=sent.count) + b"\n")
    elif not receipts:
        await stdio.say(_summary(sent.count, topic), err=True)


async def _is_missing(client: "Client", topic: str) -> bool:
    """Whether there is no such topic yet: brokers may create it for the first record, and the name may be misspelt."""
    import trio

    from ottla.errors import UnknownTopicOrPartition

    with trio.move_on_after(_CHECK), suppress(OttlaError):  # the producer meets the same trouble, and reports it
        try:
            await client.describe_topic(topic, configs=False)
        except UnknownTopicOrPartition:
            return True
    return False


async def _size(client: "Client", topic: str) -> str:
    """The number of partitions of a topic, as the end of a line; empty if the broker does not say it."""
    import trio

    with trio.move_on_after(_CHECK), suppress(OttlaError):
        described = await client.describe_topic(topic, configs=False)
        return f" with {counted(len(described.partitions), 'partition')}"
    return ""


@dataclass
class _Sent:
    """Counts the records that the producer has accepted, or with receipts, that are stored."""

    count: int = 0

    def one_more(self) -> None:
        self.count += 1


def _summary(count: int, topic: str) -> str:
    return f"{counted(count, 'record')} {'is' if count == 1 else 'are'} stored in {topic}"


def _open(file: Path | None) -> int:
    """A file descriptor to read from: the file's, or stdin's."""
    if file is None:
        if sys.stdin is None:
            raise typer.BadParameter("stdin is closed: name a file", param_hint="--file")
        return 0
    try:
        if file.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        return os.open(file, os.O_RDONLY)
    except OSError as error:
        raise typer.BadParameter(f"cannot read {file}: {error.strerror}", param_hint="--file") from None


async def _send_all(
    producer: "Producer",
    topic: str,
    lines: AsyncIterator[list[bytes]],
    parse: Callable[[bytes], InputRecord],
    receipts: bool,
    sent: _Sent,
    progress: Callable[[int], None],
) -> None:
    """Send every line; counts them in ``sent``.

    Raises:
        BadInput: a line is invalid; has its number. The lines before it are sent.
    """
    send = producer.send if receipts else producer.send_soon
    async for read in lines:
        end = sent.count + len(read)

        def given_up() -> str:
            left = end - sent.count  # noqa: B023 # called within this turn of the loop only
            return f"ottla: stopped by a signal: {counted(left, 'line')} may have been read but not sent"

        with exits.finished_within(_GRACE, given_up):
            for text in read:
                try:
                    line = parse(text)
                    receipt = await send(
                        topic,
                        line.value,
                        key=line.key,
                        partition=line.partition,
                        headers=line.headers,
                        timestamp=line.timestamp,
                    )
                except (BadInput, RecordTooLarge, MessageTooLarge, EncodeError) as error:
                    raise _refused(sent.count + 1, error) from None
                sent.one_more()
                if receipt is not None:
                    await stdio.write(as_json(**receipt._asdict()) + b"\n")
        progress(sent.count)


def _ignored(count: int) -> None:
    """Show no progress."""


@contextmanager
def _shown_progress() -> Iterator[Callable[[int], None]]:
    """Show a line with the number of records on stderr, if it is a terminal; the result changes the number."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield _ignored
        return
    from rich.console import Console  # only here: it takes 0.1 s
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.completed:,.0f} records"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=None)
        yield lambda count: progress.update(task, completed=count)


def _refused(line: int, error: OttlaError) -> BadInput:
    before = "the line before it was sent" if line == 2 else f"the {line - 1} lines before it were sent"
    sent = before if line > 1 else "nothing was sent"
    return BadInput(f"line {line}: {error}; {sent}")
