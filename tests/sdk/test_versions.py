"""The promises of the table of versions: each range fits the codec, has a reason, and appears nowhere else."""

import re
from pathlib import Path
from typing import Any

import pytest

from ottla.codec import wire
from ottla.codec.apis.fetch import FetchRequest
from ottla.codec.apis.find_coordinator import FindCoordinatorRequest
from ottla.codec.apis.offset_commit import OffsetCommitRequest
from ottla.codec.apis.offset_fetch import OffsetFetchRequest
from ottla.codec.apis.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from ottla.codec.apis.produce import ProduceRequest
from ottla.sdk.connection import versions
from ottla.sdk.connection.versions import SPOKEN, common, since

NARROWER: dict[type, tuple[int, int]] = {
    ProduceRequest: versions.PRODUCE_IDEMPOTENT,
    FetchRequest: versions.FETCH_BY_NAME,
    FindCoordinatorRequest: versions.FIND_ONE_COORDINATOR,
    OffsetCommitRequest: versions.COMMIT_BY_NAME,
    OffsetFetchRequest: versions.COMMITTED_BY_NAME,
    OffsetForLeaderEpochRequest: versions.EPOCH_ENDS_FOR_CONSUMERS,
}
SDK = Path(versions.__file__).parents[1]


@pytest.mark.parametrize("request_type", SPOKEN)
def test_what_the_client_does_not_speak_has_a_reason(request_type: type[Any]) -> None:
    low, high, why = SPOKEN[request_type]
    declared = wire.api(request_type).versions
    assert (declared.low, declared.high) != (low, high) and declared.low <= low <= high <= declared.high
    assert why and since(request_type, low)


@pytest.mark.parametrize("request_type", NARROWER)
def test_a_narrower_range_is_one_that_the_client_speaks(request_type: type[Any]) -> None:
    low, high = NARROWER[request_type]
    everything = {wire.api(request_type).key: (0, 99)}
    both = common(request_type, (low, high), everything)
    assert both == range(low, high + 1)


def test_versions_are_compared_with_constants_of_the_table_only() -> None:
    for path in SDK.rglob("*.py"):
        text = path.read_text()
        assert path.name == "versions.py" or not re.search(r"versions=\(\d|\bversion (?:[<>]=?|==) [1-9]", text), path
