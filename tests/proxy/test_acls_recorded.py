"""Clients of the proxy with few rights get the responses of Apache Kafka with its StandardAuthorizer.

The requests and the responses are those of `tests/brokerlite/test_acls_recorded.py`. Here the proxy decides, and the
broker behind it lets the proxy's user do everything.
"""

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from ottla.brokerlite.config import BrokerConfig
from ottla.errors import FetchSessionIdNotFound, TopicAuthorizationFailed
from ottla.testing import Broker
from tests.brokerlite.acl_questions import PASSWORD, SCENES, SCENES_IF_NONE, USERS, answers
from tests.brokerlite.brokers import Remote
from tests.brokerlite.record_acls import RECORDED
from tests.brokerlite.test_acls_recorded import KAFKA_FAILS
from tests.proxy.running import proxied
from tests.proxy.secured import NOT_OFFERED, AclsInProxy, rules, user_file, with_passwords

pytestmark = pytest.mark.slow


@pytest.fixture
def ours(tmp_path: Path) -> Iterator[list[str]]:
    passwords = dict.fromkeys(USERS, PASSWORD)
    lines: list[str] = []
    for scenes, lenient in ((SCENES, False), (SCENES_IF_NONE, True)):
        with ExitStack() as stack:
            broker = stack.enter_context(
                Broker(BrokerConfig(port=0, acls=True, super_users=("User:ANONYMOUS",), allow_if_no_acl=lenient))
            )
            proxy = stack.enter_context(
                proxied(
                    broker.bootstrap,
                    listeners=(with_passwords(),),
                    acls=rules(allow_if_none=lenient),
                    users=user_file(tmp_path, passwords),
                )
            )
            admin = Remote(broker.bootstrap)
            stack.callback(admin.close)
            asked = AclsInProxy(proxy, admin, passwords, lenient)
            stack.callback(asked.close)
            lines += [json.dumps(line) for line in answers(asked, scenes)]
    yield lines


NOT_OFFERED_HERE = ("Metadata v0", "Produce by id", "OffsetFetch by id", "AddPartitionsToTxn v4", "WriteTxnMarkers")
"""Requests in versions that the proxy does not offer, or not where ACLs apply."""


def without_ends(line: str) -> str:
    """A line without the ends of logs: records that clients could not send by id are missing."""
    return re.sub(r'"high_watermark": [0-9]+', '"high_watermark": 0', line)


def test_the_answers_are_apache_kafkas(ours: list[str]) -> None:
    theirs = RECORDED.read_text().splitlines()
    left = []
    for our, their in zip(ours, theirs, strict=True):
        scene, case, said = json.loads(our)
        assert json.loads(their)[:2] == [scene, case]
        if said == NOT_OFFERED:
            assert case.endswith(NOT_OFFERED_HERE), case
        elif without_ends(our) != without_ends(their):
            left.append((scene, case, said, json.loads(their)[2]))
    # A session does not go on with other rights: the client is told to begin another one.
    sessions = [said for scene, _, said, _ in left if scene == "sessions"]
    assert len(sessions) == 6
    assert all(said == {"error_code": FetchSessionIdNotFound.code, "responses": []} for said in sessions)
    others = {case: (said, their) for scene, case, said, their in left if scene != "sessions"}
    # The proxy does not know whether a topic exists that the client may describe, and not delete.
    missing = {case for case in others if case.endswith("Describe: DeleteTopics") or "Create: DeleteTopics" in case}
    for case in missing:
        said, their = others[case]
        found = {each["name"]: each["error_code"] for each in said["responses"]}
        assert found == {"none": TopicAuthorizationFailed.code, "secret": TopicAuthorizationFailed.code}
        assert {each["error_code"] for each in their["responses"]} == {3, TopicAuthorizationFailed.code}
    # Upstream would also match a pattern with topics that the client may not describe, so the proxy refuses it.
    refused = {case for case, (_, their) in others.items() if case.startswith("a pattern with ")}
    assert all(others[case][0] == [TopicAuthorizationFailed.code, []] for case in refused)
    assert {case.removeprefix("a pattern with ") for case in refused} == {
        *("nothing", "Describe on a topic", "Read on a topic", "Describe on a prefix"),
        *("all topics but one", "all topics but a prefix"),
        *("another's right on a topic", "another's right on a prefix", "another's right on all topics"),
        "a denied topic",
    }
    assert others.keys() == missing | refused | KAFKA_FAILS
