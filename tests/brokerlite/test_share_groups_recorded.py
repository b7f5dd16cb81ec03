"""Members of share groups get the answers of Apache Kafka 4.3.1 (`tests/wire/share_groups.jsonl.gz`)."""

import gzip
import json
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from tests.brokerlite.record_share_groups import RECORDED
from tests.brokerlite.share_scenes import SCENES, WALKS, PatientLine, sequences


def _by_name(lines: list[Any]) -> Iterator[tuple[str, list[Any]]]:
    for name, each in groupby(lines, key=lambda line: str(line[0])):
        yield name, [line[1:] for line in each]


def test_every_answer_of_every_sequence_is_apache_kafkas(tmp_path: Path) -> None:
    line = PatientLine(tmp_path / "data")
    ours = [json.loads(json.dumps(each)) for each in sequences(line)]
    line.machine.folder.abandon()
    theirs = [json.loads(each) for each in gzip.decompress(RECORDED.read_bytes()).splitlines()]
    named = dict(_by_name(ours))
    assert len(named) == WALKS + len(SCENES) + 1 >= 80
    for name, recorded in _by_name(theirs):
        differs = next((pair for pair in zip(named[name], recorded, strict=False) if pair[0] != pair[1]), None)
        assert differs is None, f"{name}: {differs}"
        assert len(named[name]) == len(recorded), name
    assert sum(len(each) for each in named.values()) == len(theirs)
