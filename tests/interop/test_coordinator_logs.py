"""The checks of coordinators' logs: each of them can fail."""

from typing import Any

import pytest

from tests.interop.coordinator_logs import Stored, check_commits, check_owners, check_share_state

ACKNOWLEDGED, AVAILABLE = 2, 0


def assignment(member: str, assigned: list[int], revoking: list[int]) -> Stored:
    def places(partitions: list[int]) -> list[dict[str, Any]]:
        return [{"topicId": "T", "partitions": partitions}] if partitions else []

    value = {"assignedPartitions": places(assigned), "partitionsPendingRevocation": places(revoking)}
    return 8, {"groupId": "g", "memberId": member}, value


def gone(member: str) -> Stored:
    return 8, {"groupId": "g", "memberId": member}, None


def commit(partition: int, offset: int) -> Stored:
    return 1, {"group": "g", "topic": "t", "partition": partition}, {"offset": offset}


def progress(start: int, *batches: tuple[int, int, int]) -> Stored:
    states = [{"firstOffset": first, "lastOffset": last, "deliveryState": state} for first, last, state in batches]
    return 1, {"groupId": "g", "topicId": "T", "partition": 0}, {"startOffset": start, "stateBatches": states}


def test_a_partition_that_was_given_up_has_another_owner() -> None:
    records = [assignment("a", [0, 1], []), assignment("a", [0], [1]), assignment("a", [0], [])]
    assert check_owners([*records, assignment("b", [1], [])], "g") == 1
    assert check_owners([*records, gone("a"), assignment("b", [0, 1], [])], "g") == 2


@pytest.mark.parametrize("before", [assignment("a", [0, 1], []), assignment("a", [0], [1])], ids=["owned", "revoking"])
def test_a_partition_that_was_not_given_up_must_have_no_other_owner(before: Stored) -> None:
    with pytest.raises(AssertionError, match="which a still owns"):
        check_owners([before, assignment("b", [1], [])], "g")


def test_a_group_without_owners_is_not_evidence() -> None:
    with pytest.raises(AssertionError, match="no member of h"):
        check_owners([assignment("a", [0], [])], "h")


def test_a_commit_must_not_go_backwards() -> None:
    records = [commit(0, 5), commit(1, 3), commit(0, 5), commit(0, 7)]
    assert check_commits(records, "g") == {0: 7, 1: 3}
    with pytest.raises(AssertionError, match="partition 0: 7, then 6"):
        check_commits([*records, commit(0, 6)], "g")


def test_a_share_group_must_not_go_back() -> None:
    records = [progress(0), progress(0, (2, 4, ACKNOWLEDGED), (5, 5, AVAILABLE)), progress(5)]
    assert check_share_state(records, "g") == {0: 5}
    with pytest.raises(AssertionError, match="began at 5, then 4"):
        check_share_state([*records, progress(4)], "g")
    with pytest.raises(AssertionError, match=r"\[4\] had a result"):
        check_share_state([*records[:2], progress(0, (4, 5, AVAILABLE))], "g")
