"""`ottla consume`: prints records as lines."""

import math
import re
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ottla.cli import exits, stdio
from ottla.cli.lines import as_json, header_fields, parse_separator
from ottla.cli.options import Connect, IsolationLevel, at_cluster
from ottla.cli.places import Place, parse_time

if TYPE_CHECKING:
    from ottla.codec.records import Record
    from ottla.sdk.client import Client
    from ottla.sdk.consumer import Batch, Consumer

EXAMPLE = "Example: ottla consume flights --from 2013-07-04T00:00:00Z --until-end --json | head -3"

Start = Literal["beginning", "end"] | datetime | int
"""Where to begin; a negative number is so many offsets before the end."""
Level = Literal["read_uncommitted", "read_committed"]

IDLE = 0.2
"""Seconds between two checks whether the end is reached without another record (after a transaction's last marker)."""
SETTLED = 4.0
"""Seconds without a partition after which a member checks whether its group will assign any to it."""
UNSETTLED = 60.0
"""Seconds without a partition after which it gives up on a group that does not become stable."""
_WRITTEN = 1000
"""Records that are formatted before they are written: a batch may have a million."""


@at_cluster
async def consume(
    connect: Connect,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic to read.")],
    start: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="WHERE",
            help="beginning, end, a time like 2013-07-04T12:00:00Z, an offset like 20, or -10: the last ten "
            "offsets of each partition.",
        ),
    ] = "beginning",
    count: Annotated[int | None, typer.Option(min=1, help="Stop after this number of records.")] = None,
    until_end: Annotated[
        bool, typer.Option("--until-end", help="Stop at the current end of the topic, and do not wait for more.")
    ] = False,
    partitions: Annotated[
        list[int] | None, typer.Option("--partition", "-p", min=0, help="Only this partition; may be repeated.")
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            metavar="GROUP",
            help="Share the topic with all members of a group, continue at its committed offsets, and commit "
            "printed records. Written into a pipe counts as printed: for N records use --count N, not head. --from "
            "has an effect only where no offset is committed.",
        ),
    ] = None,
    key_separator: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Print KEY, this text, VALUE; \\t is a tab.")
    ] = None,
    json: Annotated[
        bool,
        typer.Option(
            "--json", help="Print each record as a line of JSON; bytes that are not UTF-8 as key_base64, value_base64."
        ),
    ] = False,
    isolation: Annotated[
        IsolationLevel,
        typer.Option(help="With read_committed, wait for the end of open transactions, and leave out aborted ones."),
    ] = IsolationLevel.READ_UNCOMMITTED,
) -> None:
    """Print the records of a topic, and wait for more until Ctrl-C, --count or --until-end."""
    where = _start(start)
    if group is not None and isinstance(where, int):
        instead = f"ottla groups reset {group} --topic {topic} --to-offset OFFSET --execute"
        raise typer.BadParameter(
            f"a group continues at its committed offsets; to move it: {instead}", param_hint="--from"
        )
    if group is not None and partitions:
        raise typer.BadParameter(
            "the group assigns the partitions: leave out --partition, or --group", param_hint="--partition"
        )
    separator = parse_separator(key_separator)
    form = _json_line if json else lambda batch, record: _text_line(record, separator)
    level = isolation.literal
    async with connect() as client:
        first: dict[Place, int] = {}
        end: dict[Place, int] | None = None
        held_back = 0
        if until_end or partitions or isinstance(where, int):
            first, reached, held_back = await _bounds(client, topic, where, partitions, level)
            end = reached if until_end else None
        if group is not None:
            async with client.consumer(topic, group=group, start=where, isolation=level) as consumer:
                await _print(consumer, form, count, end, _Share(client, consumer, group))
        elif not first:  # the consumer itself waits for a topic that is just being created, and for new partitions
            async with client.consumer(topic, start=where, isolation=level) as consumer:
                await _print(consumer, form, count, end)
        elif end is None or any(first[place] < end[place] for place in end):
            async with client.consumer(assign=first, isolation=level) as consumer:
                await _print(consumer, form, count, end)
    if held_back and until_end:
        wait = "record waits" if held_back == 1 else "records wait"
        await stdio.say(f"{held_back} {wait} behind an open transaction", err=True)


def _start(text: str) -> Start:
    if text == "beginning":
        return "beginning"
    if text == "end":
        return "end"
    if re.fullmatch(r"-?[0-9]{1,19}", text):
        return int(text)
    return parse_time(text, "--from", "beginning, end, an offset, or ")


async def _bounds(
    client: "Client", topic: str, start: Start, partitions: list[int] | None, isolation: Level
) -> tuple[dict[Place, int], dict[Place, int], int]:
    """The first offset to read of each partition, where each ends now, and the number of offsets after that which an
    open transaction holds back.

    Raises:
        BadInput: the requested offset is not in the log of a partition.
    """
    if partitions is None:
        partitions = [each.partition for each in (await client.describe_topic(topic, configs=False)).partitions]
    places = [(topic, partition) for partition in partitions]
    whole = await client.offsets(dict.fromkeys(places, "end")) if isolation == "read_committed" else {}
    end = await client.offsets(dict.fromkeys(places, "end"), isolation=isolation)
    held_back = sum(max(offset - end[place], 0) for place, offset in whole.items())
    if isinstance(start, int):
        begin = await client.offsets(dict.fromkeys(places, "beginning"))
        if start < 0:
            return {place: max(begin[place], offset + start) for place, offset in end.items()}, end, held_back
        for place in places:
            _check_offset(start, place, begin[place], whole.get(place, end[place]), alone=len(places) == 1)
        return dict.fromkeys(places, start), end, held_back
    first = await client.offsets(dict.fromkeys(places, start), isolation=isolation) if start != "end" else end
    # -1: no record is that recent, so the next one is the first. The end was looked up before the time: a record that
    # arrives in between is after that end, and is read.
    return {place: offset if offset >= 0 else end[place] for place, offset in first.items()}, end, held_back


def _check_offset(offset: int, place: Place, begin: int, end: int, *, alone: bool) -> None:
    if begin <= offset <= end:
        return
    held = f"has offsets {begin} to {end - 1}" if begin < end else f"is empty, and its next offset is {end}"
    advice = "" if alone else ": choose a partition with --partition"
    raise exits.BadInput(f"there is no offset {offset}: partition {place[1]} of {place[0]} {held}{advice}")


@asynccontextmanager
async def _while_read() -> AsyncIterator[None]:
    """End the block quietly once the reader of stdout has gone, and drop the rest of the output."""
    try:
        async with stdio.while_read():
            yield
    except BrokenPipeError:
        exits.drop_output()


@_while_read()
async def _print(
    consumer: "Consumer",
    form: "Callable[[Batch, Record], bytes]",
    count: int | None,
    end: Mapping[Place, int] | None,
    share: "_Share | None" = None,
) -> None:
    """Print records until ``count`` of them, until ``end`` is reached in every partition that is read, or until the
    reader of stdout has gone.

    Args:
        share: the member's share of its group, if there is one; printed records are then committed.
    """
    printed = 0
    while printed != count and not _at_end(consumer, end):
        batch = await next_batch(consumer, math.inf if end is None else IDLE)
        if batch is None:
            if share is not None and await share.is_nothing():
                return
            continue
        limit = end.get((batch.topic, batch.partition)) if end is not None else None
        records = [each for each in batch if limit is None or each.offset < limit]
        if count is not None:
            records = records[: count - printed]
        for start in range(0, len(records), _WRITTEN):
            await stdio.write(b"".join(form(batch, record) for record in records[start : start + _WRITTEN]))
        if share is not None and records:
            following = batch.next_offset if len(records) == len(batch) else records[-1].offset + 1
            consumer.commit_soon({(batch.topic, batch.partition): following})
        printed += len(records)


class _Share:
    """The partitions that a group assigns to this member, which only wants to reach the end."""

    def __init__(self, client: "Client", consumer: "Consumer", group: str) -> None:
        self._client, self._consumer, self._group = client, consumer, group
        self._since = time.monotonic()

    async def is_nothing(self) -> bool:
        """Whether the group is stable and assigns all partitions to other members; then prints that.

        Raises:
            TimeoutExpired: the group does not become stable.
        """
        from ottla.errors import TimeoutExpired

        if self._consumer.assignment:
            self._since = time.monotonic()
        waited = time.monotonic() - self._since
        if waited < SETTLED:
            return False
        group = await self._client.describe_group(self._group)
        # A member without partitions is this one. If all have some, this one has not heard of its own yet.
        have_some = [bool(each.assignment) for each in group.members]
        if group.state == "Stable" and any(have_some) and not all(have_some):
            others = f"its {len(group.members)} members share all partitions"
            await stdio.say(f"group {self._group} assigns no partition to this member: {others}", err=True)
            return True
        if waited > UNSETTLED:
            raise TimeoutExpired(f"group {self._group} assigned no partition in {waited:.0f} s: it is {group.state}")
        return False


def _at_end(consumer: "Consumer", end: Mapping[Place, int] | None) -> bool:
    """Whether all assigned partitions are read to their ends."""
    from ottla.errors import LocalProtocolError

    places = consumer.assignment
    try:
        return end is not None and bool(places) and all(consumer.position(*each) >= end.get(each, 0) for each in places)
    except LocalProtocolError:  # a position is still being looked up
        return False


async def next_batch(consumer: "Consumer", within: float) -> "Batch | None":
    """The next batch; ``None`` if none came ``within`` so many seconds: the last offsets may have no record."""
    import trio

    with trio.move_on_after(within):  # cancelling it never loses a batch
        return await anext(consumer)
    return None


def _text_line(record: "Record", separator: bytes | None) -> bytes:
    value = record.value or b""
    return value + b"\n" if separator is None else (record.key or b"") + separator + value + b"\n"


def _json_line(batch: "Batch", record: "Record") -> bytes:
    line = as_json(
        topic=batch.topic,
        partition=batch.partition,
        offset=record.offset,
        timestamp=record.timestamp,
        key=record.key,
        value=record.value,
        headers=header_fields(record.headers),
    )
    return line + b"\n"
