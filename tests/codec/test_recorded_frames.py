"""Every engine against frames that real clients and brokers exchanged (tests/wire/README.md lists them).

Every frame is read to its last byte, with the values that Apache Kafka's own classes read from it, and is rebuilt to
the same bytes. A list at the top has all exceptions, with the expected outcome of each.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from ottla.codec import frames, wire
from ottla.codec.apis import APIS
from ottla.codec.frames import RequestHeader, ResponseHeader
from ottla.errors import DecodeError
from tests.codec import strategies
from tests.codec.engines import ENGINES, Engine
from tests.codec.kafka_json import OLD_NAMES, to_json
from tests.codec.recorded import FILES, Exchange, exchanges


@dataclass(frozen=True)
class Unknown:
    """The key or the version is not known."""


@dataclass(frozen=True)
class Damaged:
    """A `DecodeError` at ``path``."""

    path: str


@dataclass(frozen=True)
class Left:
    """``count`` bytes remain after the request."""

    count: int


ODD: dict[tuple[str, int | None, str], Unknown | Damaged | Left] = {
    # Requests between brokers and controllers before KRaft are no concern of a client.
    ("ControlledShutdown", None, ""): Unknown(),
    ("LeaderAndIsr", None, ""): Unknown(),
    ("StopReplica", None, ""): Unknown(),
    ("UpdateMetadata", None, ""): Unknown(),
    # Requests with intended mistakes.
    ("Unknown", None, ""): Unknown(),
    ("ApiVersions", 99, ""): Unknown(),
    ("Metadata", 99, ""): Unknown(),
    ("FindCoordinator", 2, "truncated request"): Damaged("FindCoordinatorRequest.key"),
    ("Produce", 2, "unsupported api key 0 version 2"): Damaged("ProduceRequest.timeout_ms"),  # it is truncated, too
    ("Fetch", 3, "unsupported api key 1 version 3"): Damaged("FetchRequest.replica_id"),  # it is truncated, too
    ("ListGroups", 0, "trailing bytes after the request"): Left(5),
    # A SASL token without a header.
    ("SaslToken", None, ""): Damaged("RequestHeader.client_id"),
    # librdkafka 2.16.0 ends this request with one byte too many.
    ("AlterUserScramCredentials", 0, "admin: ACLs and SCRAM"): Left(1),
}
"""Requests that are not read whole: (API, version or ``None`` for all, scenario or "" for all) -> expected outcome."""

LIBRDKAFKAS = ("AlterUserScramCredentials",)
"""The entries of `ODD` that only librdkafka sends."""

NEVER_RECORDED: dict[str, tuple[int, ...]] = {
    "AlterReplicaLogDirs": (0,),
    "CreateDelegationToken": (0, 1, 2),
    "CreateTopics": (0,),
    "DeleteGroups": (3,),
    "DescribeDelegationToken": (0,),
    "ExpireDelegationToken": (0,),
    "ListConfigResources": (0,),
    "OffsetCommit": (0, 1),
    "OffsetFetch": (0,),
    "OffsetForLeaderEpoch": (0, 1),
    "RenewDelegationToken": (0,),
    "StreamsGroupDescribe": (1,),
    "StreamsGroupHeartbeat": (1,),
    "StreamsGroupTopologyDescriptionUpdate": (0,),
    "TxnOffsetCommit": (6,),
    "UnregisterController": (0,),
    "UpdateFeatures": (0,),
    "WriteTxnMarkers": (0,),
}
"""Versions without any frame: too old for the recorded clients, or too new for the brokers."""

RECORDED = sorted(api.name for api in APIS.values() if api.name in FILES)
EACH_ENGINE = pytest.mark.parametrize("engine", ENGINES.values(), ids=list(ENGINES))
EACH_API = pytest.mark.parametrize("api", RECORDED)


def oddity(exchange: Exchange) -> Unknown | Damaged | Left | None:
    keys = [(exchange.api, version, text) for version in (exchange.version, None) for text in (exchange.scenario, "")]
    found = next((ODD[key] for key in keys if key in ODD), None)
    return None if exchange.api in LIBRDKAFKAS and exchange.client != "librdkafka" else found


def readable(api: str) -> Iterator[Exchange]:
    """The exchanges whose requests can be read, even if some leave bytes."""
    yield from (each for each in exchanges(api) if not isinstance(oddity(each), Unknown | Damaged))


def read_request(engine: Engine, exchange: Exchange) -> tuple[RequestHeader, Any, int]:
    header_version = frames.header_version(exchange.key, exchange.version)
    header, offset = engine.parse(RequestHeader, header_version, exchange.request)
    body, end = engine.parse(APIS[exchange.key].request, exchange.version, exchange.request, offset)
    return header, body, end


def read_response(engine: Engine, exchange: Exchange) -> tuple[ResponseHeader, Any, int]:
    assert exchange.response is not None
    version = exchange.response_version
    header_version = frames.response_header_version(exchange.key, version)
    header, offset = engine.parse(ResponseHeader, header_version, exchange.response)
    body, end = engine.parse(APIS[exchange.key].response, version, exchange.response, offset)
    return header, body, end


@EACH_ENGINE
@EACH_API
def test_a_recorded_request_is_read_whole_and_builds_the_same_bytes(engine: Engine, api: str) -> None:
    for exchange in readable(api):
        header, body, end = read_request(engine, exchange)
        header_version = frames.header_version(exchange.key, exchange.version)
        again = engine.build(header, header_version) + engine.build(body, exchange.version)
        assert again == exchange.request[:end], exchange
        odd = oddity(exchange)
        assert len(exchange.request) - end == (odd.count if isinstance(odd, Left) else 0), exchange


@EACH_ENGINE
@EACH_API
def test_a_recorded_response_is_read_whole_and_builds_the_same_bytes(engine: Engine, api: str) -> None:
    for exchange in exchanges(api):
        if exchange.response is not None:
            header, body, end = read_response(engine, exchange)
            assert end == len(exchange.response), exchange
            version = exchange.response_version
            header_version = frames.response_header_version(exchange.key, version)
            assert engine.build(header, header_version) + engine.build(body, version) == exchange.response, exchange


@EACH_ENGINE
@EACH_API
def test_the_values_are_those_that_kafka_itself_reads(engine: Engine, api: str) -> None:
    compared = 0
    for exchange in exchanges(api):
        if exchange.decoded_request is not None and not isinstance(oddity(exchange), Unknown | Damaged):
            body = read_request(engine, exchange)[1]
            tree = strategies.tree(type(body), exchange.version)
            assert to_json(body, tree, OLD_NAMES) == exchange.decoded_request, exchange
            compared += 1
        if exchange.decoded_response is not None:
            body = read_response(engine, exchange)[1]
            tree = strategies.tree(type(body), exchange.response_version)
            assert to_json(body, tree, OLD_NAMES) == exchange.decoded_response, exchange
            compared += 1
    assert compared > 0


def test_frames_go_through_the_door_of_headers_too() -> None:
    for exchange in readable("Metadata"):
        request = frames.parse_request(exchange.request)
        header = request.header
        built = frames.build_request(request.message, header.api_version, header.correlation_id, header.client_id)
        assert built[4:] == exchange.request, exchange
        if exchange.response is not None:
            cls = APIS[exchange.key].response
            correlation_id, message = frames.parse_response(cls, exchange.version, exchange.response)
            assert correlation_id == header.correlation_id
            assert frames.build_response(message, exchange.version, correlation_id)[4:] == exchange.response, exchange


def test_odd_requests_are_met_as_the_list_says() -> None:
    met = set()
    for exchange in (each for api in FILES for each in exchanges(api)):
        match oddity(exchange):
            case None:
                continue
            case Unknown():
                with pytest.raises(frames.UnknownApi):
                    frames.parse_request(exchange.request)
            case Damaged(path):
                with pytest.raises(DecodeError) as caught:
                    frames.parse_request(exchange.request)
                assert caught.value.path == path, exchange
            case Left(count):
                assert frames.parse_request(exchange.request).leftover == count, exchange
        met.add(exchange.api)
    assert met == {api for api, _, _ in ODD}


def test_every_version_of_every_message_was_recorded_but_these() -> None:
    missing: dict[str, tuple[int, ...]] = {}
    for api in APIS.values():
        recorded = {each.version for each in exchanges(api.name)} if api.name in FILES else set()
        versions = wire.api(api.request).versions
        if never := tuple(each for each in range(versions.low, versions.high + 1) if each not in recorded):
            missing[api.name] = never
    assert missing == NEVER_RECORDED
