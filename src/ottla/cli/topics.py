"""`ottla topics`: create, list, describe, configure, grow and delete topics."""

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ottla.cli import stdio, tables
from ottla.cli.numbers import counted
from ottla.cli.options import AsJson, Connect, at_cluster

if TYPE_CHECKING:
    from ottla.sdk.admin import TopicDescription

app = typer.Typer(no_args_is_help=True, help="Create, list, describe, configure, grow and delete topics.")

_PARTITIONS = ("partitions", "num.partitions")
"""What people write for the number of partitions."""

Name = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.")]


@app.command("create", epilog="Example: ottla topics create flights --partitions 6 --config retention.ms=86400000")
@at_cluster
async def create(
    connect: Connect,
    name: Name,
    partitions: Annotated[
        int | None, typer.Option(min=1, help="Number of partitions; default: the broker's setting.")
    ] = None,
    replication_factor: Annotated[
        int | None, typer.Option(min=1, help="Number of replicas; default: the broker's setting.")
    ] = None,
    config: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="A setting; may be repeated.")] = None,
    as_json: AsJson = False,
) -> None:
    """Create a topic."""
    configs = _settings(config or (), "--config", "use --partitions {}")
    async with connect() as client:
        made = await client.create_topic(
            name, partitions=partitions or -1, replication_factor=replication_factor or -1, configs=configs
        )
    if as_json:
        await stdio.say(json.dumps(_as_dict(made)))
    else:
        await stdio.say(f"created {made.name} with {counted(len(made.partitions), 'partition')}")


@app.command("list", epilog="Example: ottla topics list --bootstrap localhost:9092")
@at_cluster
async def list_(
    connect: Connect,
    as_json: AsJson = False,
) -> None:
    """Print the names of all topics, one per line."""
    async with connect() as client:
        names = await client.list_topics()
    if as_json:
        await stdio.say(json.dumps(names))
    else:
        await stdio.say(*names)


@app.command("describe", epilog="Example: ottla topics describe flights --json")
@at_cluster
async def describe(
    connect: Connect,
    name: Name,
    as_json: AsJson = False,
) -> None:
    """Show a topic's partitions, their offsets, and its settings."""
    async with connect() as client:
        topic = await client.describe_topic(name)
        places = [(name, each.partition) for each in topic.partitions if each.leader >= 0]
        first = await client.offsets(dict.fromkeys(places, "beginning"))
        end = await client.offsets(dict.fromkeys(places, "end"))
    offsets = {place[1]: (first[place], end[place]) for place in places}
    if as_json:
        await stdio.say(json.dumps(_as_dict(topic, offsets)))
    else:
        await _print(topic, offsets)


@app.command("configure", epilog="Example: ottla topics configure flights retention.ms=86400000 --reset segment.ms")
@at_cluster
async def configure(
    connect: Connect,
    name: Name,
    changed: Annotated[list[str] | None, typer.Argument(metavar="KEY=VALUE...", help="Settings to change.")] = None,
    reset: Annotated[
        list[str] | None, typer.Option(metavar="KEY", help="A setting that gets the broker's default; may be repeated.")
    ] = None,
) -> None:
    """Change some of a topic's settings; all others stay as they are."""
    values = _settings(changed or (), "KEY=VALUE", f"use ottla topics grow {name} {{}}")
    if both := values.keys() & set(reset or ()):
        raise typer.BadParameter(f"{min(both)} has a value, and is to be reset: choose one of them")
    changes = {**values, **dict.fromkeys(reset or ())}
    if not changes:
        raise typer.BadParameter("nothing to change: name a setting, such as retention.ms=86400000")
    async with connect() as client:
        own = (await client.describe_topic(name)).configs if reset else {}
        had = changes.keys() if own is None else own.keys()  # it may not be allowed to read them
        await client.configure_topic(name, changes)
    had_default = {key for key, value in changes.items() if value is None} - had
    if had_default != changes.keys():
        await stdio.say(f"changed {', '.join(sorted(changes.keys() - had_default))} of {name}")
    await stdio.say(*(f"{key} of {name} had the default already" for key in sorted(had_default)))


@app.command("grow", epilog="Example: ottla topics grow flights 12")
@at_cluster
async def grow(
    connect: Connect,
    name: Name,
    partitions: Annotated[int, typer.Argument(metavar="PARTITIONS", min=1, help="The total number of partitions.")],
    as_json: AsJson = False,
) -> None:
    """Add partitions to a topic; new records may then go to another partition than old ones with the same key."""
    async with connect() as client:
        grown = await client.create_partitions(name, partitions)
    if as_json:
        await stdio.say(json.dumps({"name": name, "partitions": len(grown.partitions)}))
    else:
        await stdio.say(f"{name} has {counted(len(grown.partitions), 'partition')}")


@app.command("delete", epilog="Example: ottla topics delete flights flights-direct")
@at_cluster
async def delete(
    connect: Connect,
    names: Annotated[list[str], typer.Argument(metavar="TOPIC...", help="The topics' names.")],
) -> None:
    """Delete topics and all their records; does not ask for confirmation."""
    async with connect() as client:
        for name in names:
            await client.delete_topic(name)
            await stdio.say(f"deleted {name}")


def _settings(given: Iterable[str], where: str, more_partitions: str) -> dict[str, str]:
    """Parse KEY=VALUE.

    Args:
        more_partitions: advice for a number of partitions, which is no setting.
    """
    settings: dict[str, str] = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise typer.BadParameter(f"{text!r} is not KEY=VALUE, such as retention.ms=86400000", param_hint=where)
        if key in _PARTITIONS:
            advice = more_partitions.format(value)
            raise typer.BadParameter(f"{key} is not a topic's configuration: {advice}", param_hint=where)
        if key in settings:
            raise typer.BadParameter(f"{key} has two values: choose one of them", param_hint=where)
        settings[key] = value
    return settings


def _as_dict(topic: "TopicDescription", offsets: dict[int, tuple[int, int]] | None = None) -> dict[str, Any]:
    partitions = [
        {
            "partition": each.partition,
            "leader": each.leader,
            "replicas": list(each.replicas),
            "isr": list(each.isr),
            **dict(zip(("first_offset", "end_offset"), (offsets or {}).get(each.partition, ()), strict=False)),
        }
        for each in topic.partitions
    ]
    return {
        "name": topic.name,
        "topic_id": str(topic.topic_id),
        "internal": topic.internal,
        "partitions": partitions,
        "configs": topic.configs,
    }


async def _print(topic: "TopicDescription", offsets: dict[int, tuple[int, int]]) -> None:
    columns = ("partition", "leader", "replicas", "in sync", "first offset", "end offset")
    rows = [
        (
            each.partition,
            each.leader,
            _joined(each.replicas),
            _joined(each.isr),
            *offsets.get(each.partition, (None,) * 2),
        )
        for each in topic.partitions
    ]
    await tables.show(columns, rows, topic.name)
    if topic.configs is None:
        await stdio.say("settings unknown: they need DescribeConfigs on the topic, and Kafka 0.11 or newer", err=True)
    for key, value in sorted((topic.configs or {}).items()):
        await stdio.say(f"{key}={value}")


def _joined(nodes: tuple[int, ...]) -> str:
    return ",".join(map(str, nodes))
