"""`ottla groups`: list groups of every type; describe, delete and reset consumer groups and classic ones.

Rules:
- Partial results are printed before the error; the exit code shows that something is missing.
- A reset changes nothing without ``--execute``. Its options are named as in kafka-consumer-groups.
"""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ottla.cli import stdio, tables
from ottla.cli.group_types import refuse_share_groups
from ottla.cli.nodes import node_as_dict, node_as_text
from ottla.cli.numbers import counted
from ottla.cli.options import AsJson, Connect, Isolation, IsolationLevel, at_cluster
from ottla.cli.places import format_places, parse_places, partitions_of, places_as_dicts
from ottla.cli.resets import ByDuration, Export, FromFile, ToDatetime, ToOffset, chosen, print_plan

if TYPE_CHECKING:
    from ottla.errors import OttlaError
    from ottla.sdk.admin import GroupLag, GroupListing, GroupMember
    from ottla.sdk.client import Client

app = typer.Typer(no_args_is_help=True, help="List, describe, delete and reset consumer groups.")

_SHORT = 8
"""The least number of characters of a member's id in a table of partitions."""

Names = Annotated[list[str], typer.Argument(metavar="GROUP...", help="The groups' names.")]


@app.command("list", epilog="Example: ottla groups list --state stable --state empty")
@at_cluster
async def list_(
    connect: Connect,
    state: Annotated[
        list[str] | None,
        typer.Option(metavar="STATE", help="Only groups in this state, for example stable; may be repeated."),
    ] = None,
    type_: Annotated[
        list[str] | None, typer.Option("--type", metavar="TYPE", help="Only groups of this type: classic, consumer, …")
    ] = None,
    names: Annotated[bool, typer.Option("--names", help="Print only the names, one per line.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print the groups of all brokers, share groups included."""
    from ottla.errors import PartialFailure

    async def show(groups: "tuple[GroupListing, ...]") -> None:
        if as_json:
            await stdio.say(json.dumps([_listing(each) for each in groups]))
        elif names:
            await stdio.say(*(each.group for each in groups))
        else:
            columns = ("group", "state", "type", "protocol", "coordinator")
            await tables.show(columns, [tuple(_listing(each).values()) for each in groups])

    async with connect() as client:
        try:
            await show(await client.list_groups(states=state or (), types=type_ or ()))
        except PartialFailure as failure:
            await show(failure.found)
            raise


@app.command("describe", epilog="Example: ottla groups describe billing --watch 2")
@at_cluster
async def describe(
    connect: Connect,
    groups: Annotated[list[str] | None, typer.Argument(metavar="GROUP...", help="The groups' names.")] = None,
    all_: Annotated[bool, typer.Option("--all", help="Describe all classic groups and consumer groups.")] = False,
    members: Annotated[bool, typer.Option("--members", help="Show each member and its partitions.")] = False,
    watch: Annotated[
        float | None, typer.Option(metavar="SECONDS", min=0.1, help="Repeat at this interval, until Ctrl-C.")
    ] = None,
    isolation: Isolation = IsolationLevel.READ_UNCOMMITTED,
    as_json: AsJson = False,
) -> None:
    """Show the members of groups, and how far they are behind; with --json a line for each group."""
    import trio

    if bool(groups) == all_:
        raise typer.BadParameter("name groups, or use --all", param_hint="GROUP")

    async def show(found: "Mapping[str, GroupLag]") -> None:
        for lag in found.values():
            if as_json:
                await stdio.say(json.dumps(_as_dict(lag)))
            else:
                await _print(lag, members)

    async def look(client: "Client") -> None:
        from ottla.errors import GroupIdNotFound, PartialFailure

        try:
            names = groups or [each.group for each in await client.list_groups(types=["classic", "consumer"])]
            await show(await client.group_lags(names, isolation=isolation.literal))
        except GroupIdNotFound:  # of the only group
            await refuse_share_groups(client, groups or (), "ottla share describe {} describes it")
            raise
        except PartialFailure as failure:
            await show(failure.found if isinstance(failure.found, dict) else {})
            unknown = [name for name, error in failure.failures.items() if isinstance(error, GroupIdNotFound)]
            if unknown:
                await refuse_share_groups(client, unknown, "ottla share describe {} describes it")
            raise

    async with connect() as client:
        await look(client)
        if watch is not None:
            async with stdio.while_read():
                while True:
                    await trio.sleep(watch)
                    if not as_json:
                        await tables.clear()
                    await look(client)


@app.command("delete", epilog="Example: ottla groups delete billing --topic old-orders")
@at_cluster
async def delete(
    connect: Connect,
    groups: Names,
    topics: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            metavar="TOPIC[:0,1,2]",
            help="Delete only the offsets of this topic, if no member reads it; may be repeated.",
        ),
    ] = None,
) -> None:
    """Delete groups without members, and all their offsets; does not ask for confirmation.

    Share groups are refused: ottla share delete deletes them.
    """
    from ottla.errors import PartialFailure

    places = parse_places(topics or (), "--topic")

    async def said(failures: "Mapping[str, OttlaError]") -> None:
        for name in groups:
            if name not in failures:
                await stdio.say(f"deleted {name}")

    async with connect() as client:
        await refuse_share_groups(
            client, groups, "ottla share delete {} deletes it, with the record of which jobs are done"
        )
        if places:
            partitions = await partitions_of(client, places)
            for name in groups:
                await client.delete_offsets(name, partitions)
                await stdio.say(f"deleted the offsets of {counted(len(partitions), 'partition')} from {name}")
            return
        try:
            await client.delete_groups(groups)
        except PartialFailure as failure:
            await said(failure.failures)
            raise
        await said({})


# -- reset ------------------------------------------------------------------------------------------------------------

ShiftBy = Annotated[int | None, typer.Option(metavar="N", help="Skip N records; a negative number goes back.")]
Scope = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        metavar="TOPIC[:0,1,2]",
        help="A topic, or some of its partitions; may be repeated; default: all with a committed offset.",
    ),
]


@app.command("reset", epilog="Example: ottla groups reset billing --by-duration 1h --topic orders --execute")
@at_cluster
async def reset(
    connect: Connect,
    group: Annotated[str, typer.Argument(metavar="GROUP", help="The group's name; it must have no members.")],
    topics: Scope = None,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="Reset to the beginning.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="Reset to the end.")] = False,
    to_offset: ToOffset = None,
    to_datetime: ToDatetime = None,
    by_duration: ByDuration = None,
    shift_by: ShiftBy = None,
    to_current: Annotated[
        bool, typer.Option("--to-current", help="Reset to the committed offset, or else the end.")
    ] = False,
    from_file: FromFile = None,
    execute: Annotated[bool, typer.Option("--execute", help="Commit the plan; otherwise it is only shown.")] = False,
    export: Export = False,
    as_json: AsJson = False,
) -> None:
    """Plan where a group without members continues; with --execute, commit it.

    An offset outside the log becomes the nearer end of the log, and the plan says so.
    """
    ways: dict[str, Any] = {
        "--to-earliest": "beginning" if to_earliest else None,
        "--to-latest": "end" if to_latest else None,
        "--to-offset": to_offset,
        "--to-datetime": to_datetime,
        "--by-duration": by_duration,
        "--shift-by": shift_by,
        "--to-current": "current" if to_current else None,
        "--from-file": from_file,
    }
    to, scope = chosen(group, ways, topics, export=export, as_json=as_json)
    async with connect() as client:
        await refuse_share_groups(client, [group], "ottla share reset {} resets it")
        plan = await client.reset_offsets(group, to, shift_by=shift_by, topics=scope, execute=execute)
    await print_plan(plan, export, as_json)


# -- groups as text and JSON ------------------------------------------------------------------------------------------


def _listing(each: "GroupListing") -> dict[str, str]:
    return {
        "group": each.group,
        "state": each.state,
        "type": each.type,
        "protocol_type": each.protocol_type,
        "coordinator": node_as_text(each.coordinator),
    }


def _as_dict(lag: "GroupLag") -> dict[str, Any]:
    group = lag.group
    return {
        "group": group.group,
        "state": group.state,
        "type": group.type,
        "protocol_type": group.protocol_type,
        "protocol": group.protocol,
        "coordinator": node_as_dict(group.coordinator),
        "lag": lag.total,
        "members": [
            {
                "member_id": each.member_id,
                "instance_id": each.instance_id,
                "client_id": each.client_id,
                "host": each.host,
                "assignment": places_as_dicts(each.assignment),
            }
            for each in group.members
        ],
        "partitions": [
            {
                "topic": each.topic,
                "partition": each.partition,
                "committed": each.committed,
                "end": each.end,
                "lag": each.lag,
                "member_id": each.member.member_id if each.member else None,
                **({"trouble": each.trouble} if each.trouble else {}),
            }
            for each in lag.partitions
        ],
    }


async def _print(lag: "GroupLag", members: bool) -> None:
    group = lag.group
    assignor = f", {group.protocol}" if group.protocol else ""
    where = f"coordinator {node_as_text(group.coordinator)}"
    kind = f"{group.type} group, " if group.type != "classic" else ""
    await stdio.say(f"{group.group}: {kind}{group.state}{assignor}, {counted(len(group.members), 'member')}, {where}")
    if members and group.members:
        of_members = ("member", "instance", "client", "host", "partitions", "assignment")
        await tables.show(of_members, [_member(each) for each in group.members])
    if lag.partitions:
        columns = ("topic", "partition", "committed", "end", "lag", "member", "client", "host")
        short = _short_names(group.members)
        rows = [
            (
                each.topic,
                each.partition,
                each.committed,
                each.end,
                each.lag,
                short[each.member.member_id] if each.member else None,
                each.member.client_id if each.member else None,
                each.member.host if each.member else None,
            )
            for each in lag.partitions
        ]
        await tables.show(columns, rows)
    for each in lag.partitions:
        if each.trouble:
            await stdio.say(f"{each.topic}-{each.partition}: {each.trouble}", err=True)
    unknown = sum(each.lag is None for each in lag.partitions)
    await stdio.say(f"lag {lag.total}" + (f", unknown for {counted(unknown, 'partition')}" if unknown else ""))


def _short_names(members: "Sequence[GroupMember]") -> dict[str, str]:
    """The instance id of each member, or the beginning of its id that tells it apart from the others."""
    ids = {each.member_id for each in members}
    longest = max(map(len, ids), default=0)
    size = next((n for n in range(_SHORT, longest) if len({each[:n] for each in ids}) == len(ids)), longest)
    return {
        each.member_id: each.instance_id or (each.member_id[:size] + ("…" if size < len(each.member_id) else ""))
        for each in members
    }


def _member(each: "GroupMember") -> tuple[object, ...]:
    assignment = format_places(each.assignment)
    return each.member_id, each.instance_id, each.client_id, each.host, len(each.assignment), assignment
