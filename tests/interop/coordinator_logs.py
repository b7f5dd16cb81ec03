"""The records of a broker's coordinators as Kafka's DumpLogSegments reads them, and the rules for every moment in them.

- A partition of a consumer group has one owner: a member owns it until it has confirmed that it gave it up.
- Committed offsets never go backwards.
- The start offset of a share partition never goes backwards, and the group never loses a result of a record.
"""

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from tests.brokerlite.test_process import dumped_by_kafka

CONSUMER_OFFSETS, SHARE_STATE = "--offsets-decoder", "--share-group-state-decoder"
_COMMIT, _CURRENT_ASSIGNMENT = (0, 1), 8
_ACKNOWLEDGED, _ARCHIVED = 2, 4

Stored = tuple[int, dict[str, Any], dict[str, Any] | None]
"""A record: the type of its key, the fields of the key, and the fields of the value; None deletes the key."""


def stored(folder: Path, decoder: str) -> list[Stored]:
    """The records of an internal topic's partition, without the markers of transactions.

    Args:
        decoder: the option of DumpLogSegments for the topic.

    Raises:
        AssertionError: the tool finds something wrong with the log, or with a record.
    """
    logs = ",".join(str(path) for path in sorted(folder.glob("*.log")))
    dumped = dumped_by_kafka(logs, decoder, "--deep-iteration")
    assert "isvalid: false" not in dumped
    records: list[Stored] = []
    for line in re.findall(r"^\| offset: .*$", dumped, re.MULTILINE):
        if " endTxnMarker: " in line:
            continue
        found = re.search(r" key: (\{.*?\}) payload: (\{.*\}|<DELETE>)$", line)
        assert found, f"not decoded: {line}"
        key = json.loads(found[1])
        value = None if found[2] == "<DELETE>" else json.loads(found[2])["data"]
        records.append((int(key["type"]), key["data"], value))
    return records


def check_owners(records: Iterable[Stored], group: str) -> int:
    """Check that each partition of a consumer group had one owner at a time; return how often a partition moved."""
    owned: dict[str, set[tuple[str, int]]] = {}
    last: dict[tuple[str, int], str] = {}
    moved = 0
    for kind, key, value in records:
        if kind != _CURRENT_ASSIGNMENT or key["groupId"] != group:
            continue
        member = key["memberId"]
        owned[member] = set(_owned(value)) if value else set()
        for other, places in owned.items():
            both = places & owned[member] if other != member else ()
            assert not both, f"{member} got {both}, which {other} still owns"
        for place in owned[member]:
            moved += last.get(place, member) != member
            last[place] = member
    assert last, f"no member of {group} ever had a partition"
    return moved


def _owned(value: dict[str, Any]) -> Iterator[tuple[str, int]]:
    for each in (*value["assignedPartitions"], *value["partitionsPendingRevocation"]):
        yield from ((each["topicId"], partition) for partition in each["partitions"])


def check_commits(records: Iterable[Stored], group: str) -> dict[int, int]:
    """Check that no committed offset of a group went backwards; return the last ones, by partition of its topic."""
    committed: dict[int, int] = {}
    for kind, key, value in records:
        if kind in _COMMIT and key["group"] == group and value is not None:
            partition, offset = key["partition"], value["offset"]
            assert offset >= committed.get(partition, 0), (
                f"partition {partition}: {committed[partition]}, then {offset}"
            )
            committed[partition] = offset
    return committed


def check_share_state(records: Iterable[Stored], group: str) -> dict[int, int]:
    """Check that a share group's progress never went back; return the last start offsets, by partition of its topic."""
    starts: dict[int, int] = {}
    ended: dict[int, set[int]] = {}
    for _, key, value in records:
        if key["groupId"] != group or value is None:
            continue
        partition, start = key["partition"], value["startOffset"]
        assert start >= starts.get(partition, -1), f"partition {partition}: began at {starts[partition]}, then {start}"
        starts[partition] = start
        for each in value["stateBatches"]:
            offsets = range(each["firstOffset"], each["lastOffset"] + 1)
            if each["deliveryState"] in (_ACKNOWLEDGED, _ARCHIVED):
                ended.setdefault(partition, set()).update(offsets)
            else:
                again = ended.get(partition, set()).intersection(offsets)
                assert not again, f"partition {partition}: {sorted(again)[:9]} had a result, which is lost"
    return starts
