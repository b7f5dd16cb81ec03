"""Users with few rights get the responses of Apache Kafka with its StandardAuthorizer (`tests/wire/acls.jsonl`)."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.errors import InvalidRequest
from tests.brokerlite.acl_questions import SCENES, SCENES_IF_NONE, AclsInProcess, answers
from tests.brokerlite.record_acls import RECORDED, recorded

KAFKA_FAILS = {f"CreateAcls: the {code} ANY" for code in ("type", "pattern", "operation", "permission")} | {
    "CreateAcls: the pattern MATCH"
}
"""Apache Kafka answers UNKNOWN_SERVER_ERROR to the whole request; here the ACL has INVALID_REQUEST."""


@pytest.fixture
def ours(tmp_path: Path) -> Iterator[list[str]]:
    strict = AclsInProcess(tmp_path / "strict")
    lenient = AclsInProcess(tmp_path / "lenient", allow_if_none=True)
    lines = [*answers(strict, SCENES), *answers(lenient, SCENES_IF_NONE)]
    yield [json.dumps(line) for line in lines]
    strict.machine.folder.abandon()
    lenient.machine.folder.abandon()


def test_the_answers_are_apache_kafkas(ours: list[str]) -> None:
    theirs = RECORDED.read_text().splitlines()
    named = [[json.loads(line)[:2] for line in lines] for lines in (ours, theirs)]
    assert named[0] == named[1], "the requests have changed: record the responses again"
    assert len(ours) > 600
    different = {json.loads(our)[1]: our for our, their in zip(ours, theirs, strict=True) if our != their}
    assert different.keys() == KAFKA_FAILS
    for line in different.values():
        codes = [each["error_code"] for each in json.loads(line)[2]["results"]]
        assert sorted(codes) == [0, InvalidRequest.code]


@pytest.mark.deep
def test_apache_kafka_still_answers_so(tmp_path: Path) -> None:
    theirs = RECORDED.read_text().splitlines()
    now = list(recorded(tmp_path))
    assert [(new, old) for new, old in zip(now, theirs, strict=True) if new != old] == []
