"""Unusual requests get the responses of Apache Kafka (`tests/wire/answers.jsonl`)."""

import json
from pathlib import Path

from tests.brokerlite.brokers import InProcess
from tests.brokerlite.record_answers import RECORDED, answers


def test_the_answers_are_apache_kafkas(tmp_path: Path) -> None:
    broker = InProcess(tmp_path / "data")
    ours = [json.dumps(line) for line in answers(broker)]
    broker.machine.folder.abandon()
    theirs = RECORDED.read_text().splitlines()
    named = [[json.loads(line)[:2] for line in lines] for lines in (ours, theirs)]
    assert named[0] == named[1], "the requests have changed: record the responses again"
    assert [(our, their) for our, their in zip(ours, theirs, strict=True) if our != their] == []
