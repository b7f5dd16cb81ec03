"""The benchmark of requests itself: figures are shares of a member and a minute, and a rebalance is refused.
`test_tables` makes the table on Apache Kafka."""

from collections import Counter
from dataclasses import dataclass, field

import pytest

from ottla.codec.apis.consumer_group_describe import Assignment, DescribedGroup, Member
from tests.bench.clients.process import Broken
from tests.bench.requests import measure
from tests.bench.requests.measure import Served, measured
from tests.kafka import ApacheKafka

FETCH, HEARTBEAT, PRODUCE = 1, 68, 0
SECONDS = 0.05


def group(epoch: int, *members: str) -> DescribedGroup:
    return DescribedGroup(
        error_code=0,
        group_id="g",
        group_state="Stable",
        group_epoch=epoch,
        assignment_epoch=epoch,
        assignor_name="range",
        members=tuple(
            Member(
                member_id=each,
                member_epoch=epoch,
                client_id="c",
                client_host="/127.0.0.1",
                subscribed_topic_names=(),
                assignment=Assignment(topic_partitions=()),
                target_assignment=Assignment(topic_partitions=()),
            )
            for each in members
        ),
    )


@dataclass(frozen=True)
class Told(Served):
    """Answers with groups and counts in turn, and with the last ones from then on."""

    groups: list[DescribedGroup] = field(default_factory=list)
    sent: list[Counter[tuple[str, int]]] = field(default_factory=list)

    def group(self, name: str) -> DescribedGroup:
        return self.groups.pop(0) if len(self.groups) > 1 else self.groups[0]

    def counts(self) -> Counter[tuple[str, int]]:
        return self.sent.pop(0) if len(self.sent) > 1 else self.sent[0]


def served(groups: list[DescribedGroup], *sent: dict[tuple[str, int], int]) -> Served:
    return Told(ApacheKafka("", []), [], groups, [Counter(each) for each in sent])


def sleeps(served: Served, group: str, members: int) -> list[str]:
    return ["sleep", "60"]


def test_a_figure_is_the_share_of_a_member_in_a_minute_and_others_requests_do_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(measure, "new_name", lambda: "requests-1")
    mine, other = "requests-1", "requests-2"
    before = {(mine, FETCH): 100, (other, FETCH): 7}
    after = {(mine, FETCH): 104, (mine, HEARTBEAT): 2, (other, FETCH): 99, ("ottla", PRODUCE): 5}
    found = measured(served([group(2, "a", "b")], before, after), {"ottla": sleeps}, 2, settle=0.0, seconds=SECONDS)
    assert found["ottla"].keys() == {"Fetch", "ConsumerGroupHeartbeat", "requests"}
    assert 0 < found["ottla"]["Fetch"] <= 4 / 2 * 60 / SECONDS
    assert found["ottla"]["Fetch"] == 2 * found["ottla"]["ConsumerGroupHeartbeat"]
    assert found["ottla"]["requests"] == pytest.approx(1.5 * found["ottla"]["Fetch"])


@pytest.mark.parametrize("later", [group(3, "a", "b"), group(2, "a", "c"), group(2, "a")])
def test_a_group_that_changed_meanwhile_is_not_measured(later: DescribedGroup) -> None:
    groups = [group(2, "a", "b"), group(2, "a", "b"), later]  # once all have joined, before and after
    with pytest.raises(Broken, match="fenced or rejoined while requests were counted: ottla"):
        measured(served(groups, {}), {"ottla": sleeps}, 2, settle=0.0, seconds=SECONDS)


def test_members_that_end_are_told_with_what_they_said() -> None:
    def fails(served: Served, group: str, members: int) -> list[str]:
        return ["sh", "-c", "echo no luck >&2"]

    with pytest.raises(Broken, match="the members ended: no luck"):
        measured(served([group(2, "a")], {}), {"ottla": fails}, 2, settle=0.0, seconds=SECONDS)
