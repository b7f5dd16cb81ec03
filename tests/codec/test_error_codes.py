"""The error codes in a response are found wherever they are."""

from collections.abc import Iterator
from typing import Any

import pytest

from ottla.codec import wire
from ottla.codec.apis import APIS, NAMES
from ottla.codec.apis.fetch import AbortedTransaction, FetchableTopicResponse, FetchResponse, PartitionData
from ottla.codec.apis.offset_fetch import OffsetFetchResponse, OffsetFetchResponseGroup
from ottla.codec.error_codes import error_codes
from tests.codec.strategies import example, tree


def found(value: Any) -> Iterator[int]:
    """Every error code other than 0, by looking at every field."""
    if isinstance(value, tuple):
        for each in value:
            yield from found(each)
    elif hasattr(value, "__wire__"):
        for field in value.__wire__:
            if field.name.endswith("error_code") and field.name != "topic_config_error_code":
                yield from filter(None, [getattr(value, field.name)])
            else:
                yield from found(getattr(value, field.name))


def test_codes_of_partitions_and_of_the_whole_response_are_found() -> None:
    partitions = tuple(
        PartitionData(partition_index=index, error_code=code, high_watermark=0, records=b"")
        for index, code in enumerate((0, 3, 0, 6))
    )
    partitions[0].aborted_transactions = (AbortedTransaction(producer_id=1, first_offset=1),)
    topic = FetchableTopicResponse(topic="t", partitions=partitions)
    assert error_codes(FetchResponse(error_code=71, responses=(topic, topic))) == [71, 3, 6, 3, 6]
    assert error_codes(FetchResponse(error_code=0, responses=())) == []


def test_an_array_that_is_null_has_none() -> None:
    group = OffsetFetchResponseGroup(group_id="g", topics=(), error_code=16)
    assert error_codes(OffsetFetchResponse(groups=(group,))) == [16]


@pytest.mark.parametrize("key", NAMES, ids=NAMES.get)
def test_nothing_is_overlooked_in_any_response(key: int) -> None:
    response = APIS[key].response
    for version in (wire.api(response).versions.low, wire.api(response).versions.high):
        message = example(tree(response, version))
        assert len(error_codes(message)) == len(list(found(message)))
    assert error_codes(message), "each API has a code in its newest version"
