"""`ottla share`: list, describe, delete and reset share groups.

Rules:
- Partial results are printed before the error; the exit code shows that something is missing.
- A reset changes nothing without ``--execute``. `ottla groups reset` has the same options.
"""

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ottla.cli import stdio, tables
from ottla.cli.group_types import refuse_consumer_groups
from ottla.cli.nodes import node_as_dict, node_as_text
from ottla.cli.numbers import counted
from ottla.cli.options import AsJson, Connect, at_cluster
from ottla.cli.places import format_places, places_as_dicts
from ottla.cli.resets import ByDuration, Export, FromFile, ToDatetime, ToOffset, chosen, print_plan

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.errors import OttlaError
    from ottla.sdk.admin import ShareGroupDescription, ShareOffset
    from ottla.sdk.client import Client

app = typer.Typer(no_args_is_help=True, help="List, describe, delete and reset share groups.")


@app.command("list", epilog="Example: ottla share list --state stable")
@at_cluster
async def list_(
    connect: Connect,
    state: Annotated[
        list[str] | None,
        typer.Option(metavar="STATE", help="Only groups in this state, for example stable; may be repeated."),
    ] = None,
    names: Annotated[bool, typer.Option("--names", help="Print only the names, one per line.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print the share groups of all brokers."""
    async with connect() as client:
        groups = await client.list_groups(states=state or (), types=["share"])
    rows = [(each.group, each.state, node_as_text(each.coordinator)) for each in groups]
    columns = ("group", "state", "coordinator")
    if as_json:
        await stdio.say(json.dumps([dict(zip(columns, row, strict=True)) for row in rows]))
    elif names:
        await stdio.say(*(each.group for each in groups))
    else:
        await tables.show(columns, rows)


@app.command("describe", epilog="Example: ottla share describe workers --members")
@at_cluster
async def describe(
    connect: Connect,
    groups: Annotated[list[str] | None, typer.Argument(metavar="GROUP...", help="The groups' names.")] = None,
    all_: Annotated[bool, typer.Option("--all", help="All share groups.")] = False,
    members: Annotated[bool, typer.Option("--members", help="Show each member and its partitions.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the members of share groups, and how far they are; with --json a line for each group."""
    from ottla.errors import GroupIdNotFound, PartialFailure

    if bool(groups) == all_:
        raise typer.BadParameter("name groups, or use --all", param_hint="GROUP")

    async def show(client: "Client", found: "Mapping[str, ShareGroupDescription]") -> None:
        for name, group in found.items():
            offsets = await client.share_offsets(name)
            if as_json:
                await stdio.say(json.dumps(_as_dict(group, offsets)))
            else:
                await _print(group, offsets, members)

    async with connect() as client:
        names = groups or [each.group for each in await client.list_groups(types=["share"])]
        try:
            await show(client, await client.describe_share_groups(names))
        except GroupIdNotFound:  # of the only group
            await refuse_consumer_groups(client, names, "ottla groups describe {} describes it")
            raise
        except PartialFailure as failure:
            await show(client, failure.found if isinstance(failure.found, dict) else {})
            unknown = [name for name, error in failure.failures.items() if isinstance(error, GroupIdNotFound)]
            if unknown:
                await refuse_consumer_groups(client, unknown, "ottla groups describe {} describes it")
            raise


@app.command("delete", epilog="Example: ottla share delete workers")
@at_cluster
async def delete(
    connect: Connect,
    groups: Annotated[list[str], typer.Argument(metavar="GROUP...", help="The groups' names.")],
) -> None:
    """Delete share groups without members, and the record of which jobs are done; does not ask for confirmation."""
    from ottla.errors import PartialFailure

    async def said(failures: "Mapping[str, OttlaError]") -> None:
        await stdio.say(*(f"deleted {name}" for name in groups if name not in failures))

    async with connect() as client:
        await refuse_consumer_groups(client, groups, "ottla groups delete {} deletes it, with its offsets")
        try:
            await client.delete_groups(groups)
        except PartialFailure as failure:
            await said(failure.failures)
            raise
        await said({})


@app.command("reset", epilog="Example: ottla share reset workers --to-earliest --topic jobs --execute")
@at_cluster
async def reset(
    connect: Connect,
    group: Annotated[str, typer.Argument(metavar="GROUP", help="The group's name; it must have no members.")],
    topics: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            metavar="TOPIC[:0,1,2]",
            help="A topic, or some of its partitions; may be repeated. By default all that the group has read.",
        ),
    ] = None,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="To the beginning.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="To the end.")] = False,
    to_offset: ToOffset = None,
    to_datetime: ToDatetime = None,
    by_duration: ByDuration = None,
    from_file: FromFile = None,
    execute: Annotated[bool, typer.Option("--execute", help="Carry out the plan; otherwise it is only shown.")] = False,
    export: Export = False,
    as_json: AsJson = False,
) -> None:
    """Plan where a share group without members continues; with --execute, carry it out.

    From there on the group gets all records again, accepted ones included.
    """
    ways: dict[str, Any] = {
        "--to-earliest": "beginning" if to_earliest else None,
        "--to-latest": "end" if to_latest else None,
        "--to-offset": to_offset,
        "--to-datetime": to_datetime,
        "--by-duration": by_duration,
        "--from-file": from_file,
    }
    to, scope = chosen(group, ways, topics, export=export, as_json=as_json)
    async with connect() as client:
        await refuse_consumer_groups(client, [group], "ottla groups reset {} resets it")
        plan = await client.reset_share_offsets(group, to, topics=scope, execute=execute)
    await print_plan(plan, export, as_json)


# -- share groups as text and JSON ------------------------------------------------------------------------------------


def _lag(offsets: "Mapping[tuple[str, int], ShareOffset]") -> int:
    return sum(each.lag or 0 for each in offsets.values())


def _as_dict(group: "ShareGroupDescription", offsets: "Mapping[tuple[str, int], ShareOffset]") -> dict[str, Any]:
    return {
        "group": group.group,
        "state": group.state,
        "assignor": group.assignor,
        "epoch": group.epoch,
        "coordinator": node_as_dict(group.coordinator),
        "lag": _lag(offsets),
        "members": [
            {
                "member_id": each.member_id,
                "client_id": each.client_id,
                "host": each.host,
                "assignment": places_as_dicts(each.assignment),
            }
            for each in group.members
        ],
        "partitions": [
            {"topic": topic, "partition": partition, "start": each.start, "lag": each.lag}
            for (topic, partition), each in offsets.items()
        ],
    }


async def _print(
    group: "ShareGroupDescription", offsets: "Mapping[tuple[str, int], ShareOffset]", members: bool
) -> None:
    of = counted(len(group.members), "member")
    await stdio.say(
        f"{group.group}: {group.state}, {group.assignor}, {of}, coordinator {node_as_text(group.coordinator)}"
    )
    if members and group.members:
        rows = [
            (each.member_id, each.client_id, each.host, len(each.assignment), format_places(each.assignment))
            for each in group.members
        ]
        await tables.show(("member", "client", "host", "partitions", "assignment"), rows)
    if offsets:
        await tables.show(
            ("topic", "partition", "start", "lag"),
            [(topic, partition, each.start, each.lag) for (topic, partition), each in offsets.items()],
        )
    await stdio.say(f"lag {_lag(offsets)}")
