"""`ottla transactions`: list and describe transactions, find and abort hanging ones, fence producers.

Rules:
- Partial results are printed before the error; the exit code shows that something is missing.
- The commands are named as in kafka-transactions, plus fence.
"""

import json
import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ottla.cli import stdio, tables
from ottla.cli.nodes import node_as_dict, node_as_text
from ottla.cli.options import AsJson, Connect, at_cluster
from ottla.cli.places import Place, format_places, format_time, parse_duration, parse_places

if TYPE_CHECKING:
    from ottla.sdk.admin import HangingTransaction, ProducerIdAndEpoch, TransactionDescription, TransactionListing
    from ottla.sdk.client import Client

app = typer.Typer(no_args_is_help=True, help="List, describe and abort transactions, and fence producers.")

Ids = Annotated[list[str], typer.Argument(metavar="ID...", help="Transactional ids.")]


@app.command("list", epilog="Example: ottla transactions list --state ongoing --running-longer 10m")
@at_cluster
async def list_(
    connect: Connect,
    state: Annotated[
        list[str] | None,
        typer.Option(metavar="STATE", help="Only ids in this state, for example ongoing; may be repeated."),
    ] = None,
    producer_id: Annotated[
        list[int] | None, typer.Option(metavar="NUMBER", help="Only the id with this producer id; may be repeated.")
    ] = None,
    running_longer: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="Only ids with a transaction open for longer than 90s, 10m, …"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print the transactional ids of all brokers, with or without an open transaction."""
    from ottla.errors import PartialFailure

    states, producer_ids = state or (), producer_id or ()
    longer = parse_duration(running_longer, "--running-longer").total_seconds() if running_longer else None

    async def show(transactions: "tuple[TransactionListing, ...]") -> None:
        rows = [{**asdict(each), "coordinator": node_as_text(each.coordinator)} for each in transactions]
        if as_json:
            await stdio.say(json.dumps(rows))
        else:
            columns = ("transactional id", "producer id", "state", "coordinator")
            await tables.show(columns, [tuple(row.values()) for row in rows])

    async with connect() as client:
        try:
            await show(await client.list_transactions(states=states, producer_ids=producer_ids, running_longer=longer))
        except PartialFailure as failure:
            await show(failure.found)
            raise


@app.command("describe", epilog="Example: ottla transactions describe billing-1 --json")
@at_cluster
async def describe(
    connect: Connect,
    ids: Ids,
    as_json: AsJson = False,
) -> None:
    """Show the producer, the state and the open transaction of transactional ids; with --json a line for each."""
    from ottla.errors import PartialFailure

    async def show(found: "Mapping[str, TransactionDescription]") -> None:
        for each in found.values():
            await stdio.say(json.dumps(_as_dict(each)) if as_json else _as_text(each, time.time()))

    async with connect() as client:
        try:
            await show(await client.describe_transactions(*ids))
        except PartialFailure as failure:
            await show(failure.found)
            raise


@app.command("find-hanging", epilog="Example: ottla transactions find-hanging orders --max-transaction-timeout 1h")
@at_cluster
async def find_hanging(
    connect: Connect,
    topics: Annotated[
        list[str] | None,
        typer.Argument(metavar="TOPIC[:0,1,2]...", help="Topics, or some of their partitions; default: all."),
    ] = None,
    max_transaction_timeout: Annotated[
        str,
        typer.Option(
            metavar="DURATION", help="The brokers' transaction.max.timeout.ms: younger transactions do not hang."
        ),
    ] = "15m",
    as_json: AsJson = False,
) -> None:
    """Find transactions that are open in a partition although no coordinator is going to end them there.

    Readers of committed records wait behind such a transaction until it is aborted.
    """
    from ottla.errors import PartialFailure

    scope = parse_places(topics, "TOPIC") if topics else None
    timeout = parse_duration(max_transaction_timeout, "--max-transaction-timeout").total_seconds()

    async def show(found: "tuple[HangingTransaction, ...]", ongoing: int | None) -> None:
        if as_json:
            await stdio.say(json.dumps([asdict(each) for each in found]))
        elif found:
            columns = ("topic", "partition", "start offset", "producer id", "epoch", "last record", "why")
            await tables.show(columns, [_cells(each) for each in found])
            await stdio.say("to abort one: ottla transactions abort TOPIC:PARTITION --start-offset OFFSET", err=True)
        elif ongoing is not None:
            others = f"; {ongoing} open: ottla transactions list --state ongoing" if ongoing else ""
            await stdio.say(f"no transaction hangs{others}", err=True)

    async with connect() as client:
        try:
            found = await client.find_hanging_transactions(scope, max_transaction_timeout=timeout)
        except PartialFailure as failure:
            await show(failure.found, None)
            raise
        await show(found, 0 if found or as_json else await _ongoing(client))


@app.command("abort", epilog="Example: ottla transactions abort orders:0 --start-offset 42")
@at_cluster
async def abort(
    connect: Connect,
    partition: Annotated[str, typer.Argument(metavar="TOPIC:PARTITION", help="The partition with the transaction.")],
    start_offset: Annotated[
        int | None, typer.Option(min=0, metavar="OFFSET", help="The start of the transaction, from find-hanging.")
    ] = None,
    producer_id: Annotated[
        int | None,
        typer.Option(
            metavar="NUMBER",
            help="Its producer, with both epochs, instead of --start-offset: for brokers before Kafka 2.8.",
        ),
    ] = None,
    producer_epoch: Annotated[int | None, typer.Option(metavar="NUMBER", help="The producer's epoch.")] = None,
    coordinator_epoch: Annotated[
        int | None, typer.Option(metavar="NUMBER", help="The epoch in the producer's last marker there, or -1.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Abort even if its coordinator is going to end it, or does not answer.")
    ] = False,
) -> None:
    """Abort a hanging transaction in a partition, so that its readers continue; does not ask for confirmation.

    Refused if its coordinator is going to end the transaction: abort would end it in this partition only.
    """
    topic, index = _place(partition)
    ids = (producer_id, producer_epoch, coordinator_epoch)
    if (start_offset is None) == (None in ids) or (start_offset is not None and any(each is not None for each in ids)):
        either = "give it, or all of --producer-id, --producer-epoch and --coordinator-epoch"
        raise typer.BadParameter(either, param_hint="--start-offset")
    async with connect() as client:
        await client.abort_hanging_transaction(
            topic,
            index,
            start_offset,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            coordinator_epoch=coordinator_epoch,
            force=force,
        )
    which = f"of producer id {producer_id}" if start_offset is None else f"from offset {start_offset} on"
    await stdio.say(f"aborted the transaction {which} in {topic}-{index}")


@app.command("fence", epilog="Example: ottla transactions fence billing-1")
@at_cluster
async def fence(
    connect: Connect,
    ids: Ids,
    as_json: AsJson = False,
) -> None:
    """Fence the producers that have these ids now, and abort their transactions; does not ask for confirmation.

    A producer that starts with the id afterwards is not affected.
    """
    from ottla.errors import PartialFailure

    async def show(fenced: "Mapping[str, ProducerIdAndEpoch]") -> None:
        if as_json:
            await stdio.say(json.dumps({name: each._asdict() for name, each in fenced.items()}))
            return
        for name, each in fenced.items():
            await stdio.say(f"fenced {name}: producer id {each.producer_id} has epoch {each.producer_epoch} now")
            if each.producer_epoch == 0:
                await stdio.say(f"{name} is new to the coordinator: is it spelled correctly?", err=True)

    async with connect() as client:
        try:
            await show(await client.fence_producers(*ids))
        except PartialFailure as failure:
            await show(failure.found)
            raise


async def _ongoing(client: "Client") -> int:
    """The number of open transactions, as far as brokers can say: before Kafka 3.0 they cannot."""
    from ottla.errors import OttlaError, PartialFailure

    try:
        return len(await client.list_transactions(states=["ongoing"]))
    except PartialFailure as failure:
        return len(failure.found)
    except OttlaError:  # this number is only an addition to the answer
        return 0


# -- as text and JSON -------------------------------------------------------------------------------------------------


def _place(text: str) -> Place:
    match parse_places([text], "TOPIC:PARTITION"):
        case [(topic, index)]:
            return topic, index
    raise typer.BadParameter(f"{text!r} is not a single partition, as in orders:0", param_hint="TOPIC:PARTITION")


def _as_dict(each: "TransactionDescription") -> dict[str, Any]:
    return {
        **asdict(each),
        "partitions": [{"topic": topic, "partition": partition} for topic, partition in each.partitions],
        "coordinator": node_as_dict(each.coordinator),
    }


def _as_text(each: "TransactionDescription", now: float) -> str:
    since = ""
    if each.is_open and each.start_timestamp is not None:
        since = f" since {format_time(each.start_timestamp)} ({max(now - each.start_timestamp / 1000, 0):.0f} s)"
    producer = f"producer id {each.producer_id}, epoch {each.producer_epoch}, timeout {each.timeout:g} s"
    where = f"; partitions {format_places(each.partitions)}" if each.partitions else ""
    return (
        f"{each.transactional_id}: {each.state}{since}, {producer}, coordinator {node_as_text(each.coordinator)}{where}"
    )


def _cells(each: "HangingTransaction") -> tuple[object, ...]:
    when = format_time(each.last_timestamp) if each.last_timestamp >= 0 else None
    return each.topic, each.partition, each.start_offset, each.producer_id, each.producer_epoch, when, each.reason
