"""Members of consumer groups get the answers of Apache Kafka 4.3.1 (`tests/wire/consumer_groups.jsonl.gz`, and
`consumer_group_patterns.jsonl.gz` for regular expressions)."""

import gzip
import json
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from tests.brokerlite.consumer_group_lines import MachineLine
from tests.brokerlite.consumer_group_patterns import WALKS_WITH_PATTERNS, pattern_sequences
from tests.brokerlite.consumer_group_scenes import SCENES
from tests.brokerlite.consumer_group_walks import WALKS, sequences
from tests.brokerlite.record_consumer_groups import RECORDED, RECORDED_PATTERNS

KAFKA_STALLS = ("patterns 12", "patterns 16")
"""In these walks a member changes to a pattern without topics. Apache Kafka does not raise the group's epoch then: the
member's target keeps a topic to which it no longer subscribes, and another member waits for it until the next change.
"""


def _by_name(lines: list[Any]) -> Iterator[tuple[str, list[Any]]]:
    for name, each in groupby(lines, key=lambda line: str(line[0])):
        yield name, [line[1:] for line in each]


def test_every_answer_of_every_sequence_is_apache_kafkas(tmp_path: Path) -> None:
    line = MachineLine(tmp_path / "data")
    ours = [json.loads(json.dumps(each)) for each in sequences(line, range(WALKS), SCENES)]
    line.machine.folder.abandon()
    theirs = [json.loads(each) for each in gzip.decompress(RECORDED.read_bytes()).splitlines()]
    named = dict(_by_name(ours))
    assert len(named) == WALKS + len(SCENES) >= 200
    for name, recorded in _by_name(theirs):
        differs = next((pair for pair in zip(named[name], recorded, strict=False) if pair[0] != pair[1]), None)
        assert differs is None, f"{name}: {differs}"
        assert len(named[name]) == len(recorded), name
    assert sum(len(each) for each in named.values()) == len(theirs)


def test_members_with_regular_expressions_get_the_topics_of_apache_kafka(tmp_path: Path) -> None:
    line = MachineLine(tmp_path / "data")
    ours = [json.loads(json.dumps(each)) for each in pattern_sequences(line)]
    line.machine.folder.abandon()
    theirs = [json.loads(each) for each in gzip.decompress(RECORDED_PATTERNS.read_bytes()).splitlines()]
    assert [each[:2] for each in ours] == [each[:2] for each in theirs], "the steps have changed: record them again"
    assert len({name for name, *_ in ours}) == WALKS_WITH_PATTERNS and len(ours) > 600
    settled = [said for _, label, said in ours if label.endswith(": settled")]
    assert all(has == target for *_, members in settled for *_, has, target in members)
    different = [(our, their) for our, their in zip(ours, theirs, strict=True) if our != their]
    assert [our[:2] for our, _ in different] == [[name, "m0 changes: settled"] for name in KAFKA_STALLS]
    for our, their in different:
        stalled = [pattern for _, _, pattern, has, target in their[2][-1] if has != target]
        assert stalled == [f"p{our[0].split()[-1]}-"]
