"""Resets of groups: the options that `ottla groups reset` and `ottla share reset` share, and the text of a plan."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ottla.cli import stdio, tables
from ottla.cli.numbers import counted
from ottla.cli.places import Place, parse_duration, parse_places, parse_time

if TYPE_CHECKING:
    from ottla.sdk.admin import ResetPlan

ToOffset = Annotated[int | None, typer.Option(min=0, metavar="OFFSET", help="Reset to this offset.")]
ToDatetime = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="Reset to the first record at or after a time, as 2013-07-04T12:00:00Z."),
]
ByDuration = Annotated[
    str | None,
    typer.Option(metavar="DURATION", help="Reset to the first record not older than this: 90m, 1d12h, PT1H, …"),
]
FromFile = Annotated[
    Path | None, typer.Option(metavar="CSV", help="Reset to the offsets in a file: TOPIC,PARTITION,OFFSET per line.")
]
Export = Annotated[bool, typer.Option("--export", help="Print the plan in the format of --from-file.")]


def chosen(
    group: str, ways: Mapping[str, Any], topics: list[str] | None, *, export: bool, as_json: bool
) -> tuple[Any, list[str | Place] | None]:
    """Check the options of a reset; return where to, and the topics and partitions, as arguments of the client.

    Args:
        ways: each option that says where to, with its value or ``None``.
    """
    if as_json and export:
        raise typer.BadParameter("prints CSV: leave out --json", param_hint="--export")
    if ways["--from-file"] is not None and topics:
        raise typer.BadParameter("has the partitions already: leave out --topic", param_hint="--from-file")
    return _where_to(group, ways), parse_places(topics, "--topic") if topics else None


def _where_to(group: str, ways: Mapping[str, Any]) -> Any:
    """The one of ``ways`` that is given, as an argument of `Client.reset_offsets`; a shift has its own argument."""
    given = [(way, value) for way, value in ways.items() if value is not None]
    if len(given) != 1:
        raise typer.BadParameter(f"give one of {', '.join(ways)}", param_hint="where to")
    [(way, value)] = given
    match way:
        case "--to-datetime":
            return parse_time(value, way)
        case "--by-duration":
            return parse_duration(value, way)
        case "--from-file":
            return _offsets_in(value, group)
    return None if way == "--shift-by" else value


def _offsets_in(file: Path, group: str) -> dict[Place, int]:
    try:
        text = file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise typer.BadParameter(f"cannot read {file}: {why}", param_hint="--from-file") from None
    from ottla.sdk.admin import offsets_from_csv

    offsets = offsets_from_csv(text, group)
    if not offsets:
        raise typer.BadParameter(f"{file} has no offsets of group {group!r}", param_hint="--from-file")
    return offsets


async def print_plan(plan: "ResetPlan", export: bool, as_json: bool) -> None:
    """Print a plan, and whether it was carried out."""
    rows = [(each.topic, each.partition, each.old, each.new, each.note) for each in plan.offsets]
    if as_json:
        names = ("topic", "partition", "old", "new", "note")
        offsets = [dict(zip(names, row, strict=True)) for row in rows]
        facts = {"group": plan.group, "new_group": plan.new_group, "executed": plan.executed, "offsets": offsets}
        await stdio.say(json.dumps(facts))
        return
    if export:
        await stdio.say(*plan.to_csv().splitlines())
        for each in plan.offsets:
            if each.note:
                await stdio.say(f"{each.topic}-{each.partition}: {each.note}", err=True)
    elif rows:
        await tables.show(("topic", "partition", "old offset", "new offset", "note"), rows, plan.group)
    if not rows:
        why = f"there is no group {plan.group}" if plan.new_group else f"{plan.group} has committed nothing"
        await stdio.say(f"{why}: name topics with --topic", err=True)
        raise typer.Exit(1)
    elif plan.executed:
        new = ", a new group" if plan.new_group else ""
        are = "is" if len(rows) == 1 else "are"
        await stdio.say(f"{counted(len(rows), 'offset')} of {plan.group} {are} reset{new}", err=True)
    else:
        new = f"{plan.group} is a group that does not exist yet; " if plan.new_group else ""
        await stdio.say(f"{new}nothing was changed: add --execute to do it", err=True)
