"""`ottla offsets`: shows where logs begin and end, the offset at a time, and a group's committed offsets."""

import json
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ottla.cli import stdio, tables
from ottla.cli.options import AsJson, Connect, Isolation, IsolationLevel, at_cluster
from ottla.cli.places import Place, format_time, parse_places, parse_time, partitions_of

if TYPE_CHECKING:
    from ottla.sdk.admin import ListedOffset
    from ottla.sdk.client import Client

EXAMPLE = "Example: ottla offsets flights --at 2013-07-04T00:00:00Z"

Wanted = Literal["beginning", "end", "max_timestamp"] | datetime


@at_cluster
async def offsets(
    connect: Connect,
    topics: Annotated[
        list[str] | None, typer.Argument(metavar="TOPIC[:0,1,2]...", help="Topics, or some of their partitions.")
    ] = None,
    at: Annotated[
        list[str] | None,
        typer.Option(
            "--at",
            metavar="WHERE",
            help="beginning, end, max-timestamp (the record with the largest timestamp), or a time like "
            "2013-07-04T12:00:00Z: the first record that is not older. May be repeated; default: beginning and end.",
        ),
    ] = None,
    group: Annotated[
        str | None, typer.Option(metavar="GROUP", help="Show this group's committed offsets; default: of all topics.")
    ] = None,
    isolation: Isolation = IsolationLevel.READ_UNCOMMITTED,
    as_json: AsJson = False,
) -> None:
    """Show the offsets of topics: where they begin and end, or at a time, or the committed offsets of a group.

    For the lag of a group use: ottla groups describe GROUP.
    """
    if not topics and group is None:
        raise typer.BadParameter("name a topic, or a --group", param_hint="TOPIC")
    if at and group is not None:
        raise typer.BadParameter("committed offsets have no time: leave out --at", param_hint="--group")
    places = parse_places(topics or (), "TOPIC")
    wanted = {text: _wanted(text) for text in at or ["beginning", "end"]}
    async with connect() as client:
        partitions = await partitions_of(client, places)
        if group is not None:
            rows = await _committed(client, group, partitions if places else None)
        else:
            level = isolation.literal
            found = {
                text: await client.list_offsets(dict.fromkeys(partitions, where), isolation=level)
                for text, where in wanted.items()
            }
            rows = [
                {"topic": place[0], "partition": place[1], **_fields(text, offsets[place])}
                for place in partitions
                for text, offsets in found.items()
            ]
    await _print(rows, as_json)


def _wanted(text: str) -> Wanted:
    match text:
        case "beginning" | "end":
            return text
        case "max-timestamp":
            return "max_timestamp"
    return parse_time(text, "--at", "beginning, end, max-timestamp, or ")


async def _committed(client: "Client", group: str, partitions: list[Place] | None) -> list[dict[str, Any]]:
    committed = await client.committed(group, partitions)
    if not committed:
        await client.describe_group(group)  # raises if there is no such group
    rows = []
    for place in sorted(committed) if partitions is None else partitions:
        at = committed.get(place)
        row: dict[str, Any] = {"topic": place[0], "partition": place[1], "offset": at.offset if at else None}
        rows.append({**row, "metadata": at.metadata if at else None})
    return rows


def _fields(text: str, found: "ListedOffset") -> dict[str, Any]:
    """The result for one place; null means that there is no offset, or that its time is unknown."""
    return {
        "at": text,
        "offset": None if found.offset < 0 else found.offset,
        "timestamp": None if found.timestamp < 0 else found.timestamp,
    }


async def _print(rows: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        await stdio.say(json.dumps(rows))
    elif rows:
        cells = [
            {**row, "timestamp": format_time(at)} if (at := row.get("timestamp")) is not None else row for row in rows
        ]
        await tables.show(list(rows[0]), [tuple(row.values()) for row in cells])
