"""The error tree: one class for each of Kafka's error codes, and readable messages."""

import inspect
import pickle
import re
import socket

import pytest

from ottla import errors
from ottla.errors import (
    BY_CODE,
    BrokerError,
    ChecksumMismatch,
    ConnectionLost,
    CorruptMessage,
    DecodeError,
    DeliveryFailed,
    EncodeError,
    NotLeaderOrFollower,
    OttlaError,
    RemoteProtocolError,
    TimeoutExpired,
    TransactionAborted,
    UnknownErrorCode,
    broker_error,
)

CLASSES = [each for _, each in inspect.getmembers(errors, inspect.isclass) if each.__module__ == errors.__name__]


def test_everything_is_an_ottla_error() -> None:
    assert all(issubclass(each, OttlaError) for each in CLASSES)


def test_every_code_has_one_class_of_its_name() -> None:
    assert set(BY_CODE) == {-1, *range(1, 137)}
    for code, each in BY_CODE.items():
        assert each.__dict__["code"] == code
        words = each.__dict__["name"].removesuffix("_EXCEPTION").split("_")
        assert "".join(words).lower() == each.__name__.lower()
    assert len({each.name for each in BY_CODE.values()}) == len(BY_CODE)


def test_every_error_says_what_it_means() -> None:
    for each in CLASSES:
        assert each.__doc__, each
        assert each.__dict__.get("__doc__"), f"{each} has no docstring of its own"


def test_every_error_of_a_broker_says_in_a_line_what_to_do() -> None:
    for each in (*BY_CODE.values(), UnknownErrorCode):
        advice = each.__dict__["advice"]
        assert re.fullmatch(r"[A-Z][^.].*[^.]\.", advice), each
        assert len(advice) < 120, each
    assert str(broker_error(6)).endswith(f" {NotLeaderOrFollower.advice}")


def test_a_missing_right_is_looked_up_by_an_administrator() -> None:
    """The client without the right may not list ACLs either."""
    for code in (29, 30, 31, 53, 65):
        text = str(broker_error(code))
        assert text.endswith(": an administrator sees why with `ottla acls list` (proxy: its log and [[acls]])."), text
        assert "kafka-acls" not in text


def test_a_missing_right_on_a_group_or_a_transactional_id_names_the_one_that_a_consumer_or_a_producer_needs() -> None:
    assert "Consuming needs Read on the group" in str(broker_error(30))
    assert "Producing needs Write on the id" in str(broker_error(53))


def test_the_message_of_an_error_is_one_line_without_the_markup_of_a_docstring() -> None:
    for each in BY_CODE.values():
        assert not re.search(r"``|\n|  ", str(each("a detail"))), each


def test_the_tree_drawn_at_the_top_is_the_tree() -> None:
    assert errors.__doc__
    drawn: dict[str, str] = {}
    above: list[tuple[int, str]] = []
    for line in errors.__doc__.splitlines():
        if found := re.match(r"^([ │├└─]*)([A-Z]\w+)(?: {2,}|$)", line):
            depth, name = len(found[1]), found[2]
            above = [(d, n) for d, n in above if d < depth]
            if above:
                drawn[name] = above[-1][1]
            above.append((depth, name))
    real = {each.__name__: each.__bases__[0].__name__ for each in CLASSES if not issubclass(each, BrokerError)}
    del real["OttlaError"]
    assert drawn == real | {"BrokerError": "OttlaError"}


def test_a_code_becomes_its_exception() -> None:
    error = broker_error(6, "t-0")
    assert type(error) is NotLeaderOrFollower
    assert (error.code, error.name, error.retriable, error.detail) == (6, "NOT_LEADER_OR_FOLLOWER", True, "t-0")
    assert str(error).startswith("NOT_LEADER_OR_FOLLOWER (6): ")
    assert str(error).endswith(" [t-0]")
    assert broker_error(6, None).detail == ""
    assert "[" not in str(broker_error(6))


def test_a_code_of_the_future_keeps_its_number() -> None:
    error = broker_error(999, "what")
    assert isinstance(error, UnknownErrorCode)
    assert error.number == 999
    assert str(error) == f"error code 999, unknown to this version of ottla. {error.advice} [what]"
    assert not error.retriable


def test_stale_metadata_is_worth_a_retry() -> None:
    assert all(each.retriable for each in BY_CODE.values() if each.stale_metadata)


def test_bytes_that_do_not_parse_are_not_asked_for_again() -> None:
    assert not DecodeError.retriable and not ChecksumMismatch.retriable
    assert RemoteProtocolError.retriable, "a new connection may help"
    assert CorruptMessage.retriable, "a producer retries it"


def test_nothing_is_both_retriable_and_fatal() -> None:
    assert not [each for each in BY_CODE.values() if each.fatal and (each.retriable or each.abortable)]


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (EncodeError("str wanted, not int", "ProduceRequest.acks"), "ProduceRequest.acks: str wanted, not int"),
        (EncodeError("too long"), "too long"),
        (
            DecodeError("3 bytes wanted", "FetchResponse.topics[0]", 17),
            "FetchResponse.topics[0] at byte 17: 3 bytes wanted",
        ),
        (DecodeError("3 bytes wanted", offset=0), "at byte 0: 3 bytes wanted"),
        (DecodeError("3 bytes wanted", "FetchResponse"), "FetchResponse: 3 bytes wanted"),
        (DecodeError("3 bytes wanted"), "3 bytes wanted"),
    ],
)
def test_codec_errors_say_where(error: OttlaError, text: str) -> None:
    assert str(error) == text


def test_failed_deliveries_say_how_many_where_and_why() -> None:
    cause = errors.DeliveryTimeout("not acknowledged within 120 s")
    error = DeliveryFailed(3, {("t", 1): 1, ("t", 0): 2}, cause)
    assert str(error) == (
        "3 record(s) were not delivered (t-0: 2, t-1: 1); first cause: DeliveryTimeout: not acknowledged within 120 s"
    )
    assert error.__cause__ is cause


def test_a_brokers_error_is_named_once_where_it_is_the_cause() -> None:
    for error in (
        DeliveryFailed(1, {("t", 9): 1}, broker_error(3)),
        TransactionAborted({("t", 9): 1}, broker_error(3)),
    ):
        assert "first cause: UNKNOWN_TOPIC_OR_PARTITION (3): " in str(error)


def test_what_a_resolver_says_comes_without_its_number() -> None:
    unknown = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    assert errors.reason(OSError("all attempts failed")) == "all attempts failed"
    assert errors.reason(unknown) == "name or service not known"


def test_who_is_to_blame_can_be_caught_by_class() -> None:
    assert issubclass(DecodeError, RemoteProtocolError)
    assert issubclass(errors.BrokerUnreachable, ConnectionLost)
    assert issubclass(errors.DeliveryTimeout, TimeoutExpired)
    assert issubclass(errors.Closed, errors.LocalProtocolError)


@pytest.mark.parametrize(
    "error",
    [
        EncodeError("too long", "A.b"),
        DecodeError("3 bytes wanted", "A.b", 17),
        DeliveryFailed(1, {("t", 0): 1}, errors.DataLoss("gone")),
        broker_error(6, "t-0"),
        broker_error(999, "t-0"),
        errors.ConfigurationError("no"),
    ],
    ids=lambda each: type(each).__name__,
)
def test_errors_survive_pickling_because_spark_sends_them_home(error: OttlaError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
