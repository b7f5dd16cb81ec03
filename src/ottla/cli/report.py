"""`ottla proxy report`: shows which clients put keys where the partitioner of a topic would not."""

import json
from collections.abc import Iterator
from http import HTTPStatus
from typing import Annotated, Any

import typer

from ottla.cli import exits
from ottla.cli.exits import BadInput
from ottla.cli.http_answer import http_answer
from ottla.cli.options import AsJson

EXAMPLE = "Example: ottla proxy report 127.0.0.1:18081"


def report(
    address: Annotated[str, typer.Argument(metavar="HOST:PORT", help="The address of the proxy's --report.")],
    as_json: AsJson = False,
) -> None:
    """Show which clients put keys where a topic's partitioner would not, and the hot keys."""
    with exits.reported():
        status, body = http_answer(address, "GET", "/report")
        if status != HTTPStatus.OK:
            raise BadInput(f"{address} answers {status}: {body}; is it the address of --report?")
    if as_json:
        typer.echo(body)
        return
    for line in _lines(json.loads(body)):
        typer.echo(line)


def _lines(found: dict[str, Any]) -> Iterator[str]:
    yield f"keys of {found['seconds']:.0f} s; keys are {found['keys']}"
    if found["observe_sample"] > 1:
        yield f"counts of observed topics are estimates, from one batch in {found['observe_sample']}"
    if not found["topics"]:
        yield "no keys yet: the report is about topics with a rule"
    for topic in found["topics"]:
        mode = topic["mode"] or "no rule any more"
        yield ""
        yield f"{topic['topic']}: {mode}, {topic['partitioner']} over {topic['partitions']} partitions"
        for client in topic["clients"]:
            yield from _client_lines(client, topic["partitioner"])
        if topic["hot_keys"]:
            hot = ", ".join(f"{each['key']} {each['share']:.1%}" for each in topic["hot_keys"])
            yield f"  hot keys, of {topic['looked_at']} that were looked at: {hot}"


def _client_lines(client: dict[str, Any], partitioner: str) -> Iterator[str]:
    name = client["client_id"] or "(no client id)"
    software = f" ({client['software']})" if client["software"] else ""
    if not client["misplaced"]:
        yield f"  {name}{software}: all {client['keys']} keys are in their partition"
        return
    explained = ""
    if client["partitioner"] not in (None, partitioner):
        explained = f"; it partitions by {client['partitioner']}"
    yield (
        f"  {name}{software}: {client['misplaced']} of {client['keys']} keys are in another partition than "
        f"{partitioner} chooses{explained}"
    )
    for each in client["samples"]:
        yield f"    key {each['key']} is in partition {each['partition']}, and belongs to {each['partition_of_key']}"
    scattered = client["keys_in_several_partitions"]
    if scattered["keys"]:
        yield (
            f"    {scattered['keys']} keys are in several partitions each: this client may choose partitions on "
            "purpose, and its topic is not for rewriting"
        )
        for each in scattered["samples"]:
            yield f"    key {each['key']} is in partitions {', '.join(map(str, each['partitions']))}"
