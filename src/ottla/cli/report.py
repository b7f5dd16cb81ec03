"""`ottla proxy report`: shows which clients put keys where the partitioner of a topic would not."""

import json
from collections.abc import Iterator
from http import HTTPStatus
from typing import Annotated, Any

import typer

from ottla.cli import exits
from ottla.cli.escapes import escaped_json, tell
from ottla.cli.exits import BadInput
from ottla.cli.http_answer import http_answer
from ottla.cli.options import AsJson

EXAMPLE = "Example: ottla proxy report 127.0.0.1:18081"


def report(
    address: Annotated[str, typer.Argument(metavar="HOST:PORT", help="The address of the proxy's --report.")],
    as_json: AsJson = False,
) -> None:
    """Show which clients put keys into other partitions than the topic's partitioner, and each topic's hot keys."""
    with exits.reported():
        status, body = http_answer(address, "GET", "/report", "report")
        if status != HTTPStatus.OK:
            raise BadInput(f"{address} answers {status}: {body}; is it the address of --report?")
    if as_json:
        tell(escaped_json(body))
        return
    tell(*lines(json.loads(body)))


def lines(found: dict[str, Any]) -> Iterator[str]:
    """The report for people; names and keys in it are as clients have chosen them."""
    yield f"Seen in the last {found['seconds']:.0f} s. Keys are {found['keys']}."
    if found["observe_sample"] > 1:
        yield f"Counts of observed topics are estimates, from one batch in {found['observe_sample']}."
    if not found["topics"]:
        yield "No records of topics with a rule yet."
    for topic in found["topics"]:
        mode, partitions = topic["mode"] or "no rule any more", topic["partitions"]
        has = topic["partitions_of_topic"]
        over = f"{partitions} partitions" if has in (None, partitions) else f"{partitions} of its {has} partitions"
        yield ""
        copied = f", copied to {', '.join(topic['copied_to'])}" if "copied_to" in topic else ""
        yield f"{topic['topic']}: {mode}, {topic['partitioner']} over {over}{copied}"
        for client in topic["clients"]:
            yield from _client_lines(client, topic["mode"], topic["partitioner"])
        if topic["hot_keys"]:
            yield f"  hot keys, by {topic['looked_at']} records that were looked at:"
            yield from (f"    {each['share']:6.1%}  {each['key']}" for each in topic["hot_keys"])


def _client_lines(client: dict[str, Any], mode: str | None, partitioner: str) -> Iterator[str]:
    name = client["client_id"] or "(no client id)"
    software = f" ({client['software']})" if client["software"] else ""
    if client["modes"] not in ([], [mode]):
        software += f", in mode {', then '.join(client['modes'])}"
    if not client["misplaced"]:
        yield f"  {name}{software}: all {client['records_with_key']} records with a key are in its partition"
        return
    explained = ""
    if client["partitioner"] not in (None, partitioner):
        explained = f"; it partitions by {client['partitioner']}"
    yield (
        f"  {name}{software}: {client['misplaced']} of {client['records_with_key']} records with a key are in "
        f"another partition than {partitioner} chooses{explained}"
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
