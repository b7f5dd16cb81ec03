"""`ottla proxy journal`: shows the state with which a proxy would continue after a restart."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from ottla.cli import exits
from ottla.cli.escapes import tell
from ottla.cli.numbers import counted, in_units
from ottla.cli.options import AsJson

EXAMPLE = "Example: ottla proxy journal /var/lib/ottla-proxy"


def journal(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The folder of --state; the proxy may be running.")],
    as_json: AsJson = False,
) -> None:
    """Show which producers a proxy remembers, and which of their batches are in flight."""
    from ottla.errors import ConfigurationError, DecodeError
    from ottla.proxy.journal.state_directory import read, segments
    from ottla.proxy.routing import TopicRules
    from ottla.proxy.topic_rule import parse_rule

    with exits.reported():
        if not segments(directory):
            raise ConfigurationError(f"{directory} has no state of a proxy")
        try:
            found = read(directory)
        except DecodeError as error:
            raise ConfigurationError(f"the journal in {directory} cannot be used: {error}") from None
        rules = TopicRules([parse_rule(text) for text in found.rules[-1]]) if found.rules else None
    lines: list[dict[str, Any]] = []
    for producer_id in found.producers:
        windows = found.windows.get(producer_id, {})
        streams = found.streams.get(producer_id, {})
        for (topic, partition), window in sorted(windows.items()):
            lines.append(
                {
                    "producer_id": producer_id,
                    "topic": topic,
                    "partition": partition,
                    "epoch": window.epoch,
                    "next_sequence": window.next_sequence,
                    "in_flight": len(window.under_way),
                    "fenced": window.fenced,
                    "sends_to": sorted(place.partition for place in streams if place.topic == topic),
                }
            )
    if as_json:
        for line in lines:
            tell(json.dumps(line))
        return
    size = sum(path.stat().st_size for path in segments(directory))
    tell(
        f"{counted(len(found.producers), 'producer')}, {counted(found.under_way, 'batch', 'batches')} in flight, "
        f"{in_units(size)} on disk"
    )
    for name, pinned in sorted(found.topics.items()):
        idle = "" if rules is None or rules.rewrites(name) else "; used again if a rule rewrites the topic"
        tell(f"  {name}: pinned to {counted(pinned.partitions, 'partition')} by {pinned.partitioner}{idle}")
    for line in lines:
        fenced = ", fenced" if line["fenced"] else ""
        tell(
            f"  producer {line['producer_id']} to {line['topic']}-{line['partition']}: epoch {line['epoch']}, next "
            f"sequence {line['next_sequence']}, {counted(line['in_flight'], 'batch', 'batches')} in flight{fenced}"
        )
    written = {line["producer_id"] for line in lines}
    if unused := len(found.producers) - len(written):
        tell(f"  {counted(unused, 'producer')} without records of a rewritten topic")
