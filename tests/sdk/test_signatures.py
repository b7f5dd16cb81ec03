"""The error for an unknown option names the right option."""

import inspect
import re
from collections.abc import Callable
from typing import Any, cast

import pytest

import ottla
import ottla.aio
import ottla.sync
from ottla.sdk.client import Client
from ottla.sdk.drivers.driver import DriverType
from ottla.sdk.kafka_meanings import MEANINGS, SAME, To
from ottla.sdk.options import ClientOptions
from ottla.sdk.signatures import _CALLS

UNOPENED = Client(ClientOptions(bootstrap="localhost"), cast("DriverType", None))
BLOCKING = ottla.sync.connect("localhost")


def refused(call: Callable[..., Any], *args: object, **options: object) -> str:
    with pytest.raises(TypeError) as caught:
        call(*args, **options)
    return str(caught.value)


@pytest.mark.parametrize("connect", [ottla.connect, ottla.aio.connect, ottla.sync.connect])
def test_connect_knows_what_kafkas_names_are_here(connect: Callable[..., Any]) -> None:
    says = refused(connect, bootstrap_servers=["b:9092", "c:9092"], request_timeout_ms=1500)
    assert "no option bootstrap_servers: do you mean bootstrap='b:9092,c:9092'?" in says
    assert "no option request_timeout_ms: do you mean request_timeout=1.5, in seconds?" in says
    assert refused(connect) == "connect(): missing a required argument: 'bootstrap'"


@pytest.mark.parametrize("client", [UNOPENED, BLOCKING])
@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ({"group_id": "g"}, "do you mean group='g'?"),
        ({"group.id": "g"}, "do you mean group='g'?"),
        ({"auto_offset_reset": "earliest"}, "do you mean start='beginning'?"),
        ({"auto_offset_reset": "nowhere"}, "do you mean start?"),
        ({"enable_auto_commit": True}, "do you mean auto_commit, in seconds?"),
        ({"session_timeout_ms": 6000}, "do you mean session_timeout=6.0, in seconds?"),
        ({"max_poll_records": 5}, "do you mean max_records=5?"),
        ({"grup": "g"}, "do you mean group?"),
        ({"topics": ["t"]}, "client.consumer('orders', 'payments')"),
        ({"value_deserializer": bytes.decode}, "value_deserializer: keys and values are bytes: decode them yourself"),
        ({"check_crcs": True}, "checksums are always checked"),
        ({"linger_ms": 5}, "do you mean linger=0.005 of producer(), in seconds?"),
        ({"request_timeout_ms": 500}, "do you mean request_timeout=0.5 of connect(), in seconds?"),
        ({"api_timeout": 3}, "it is an option of connect()"),
        ({"entirely_else": 3}, "there are group, pattern, deny,"),
    ],
)
def test_a_consumer_says_what_was_meant(client: Any, given: dict[str, object], meant: str) -> None:
    [name] = given
    says = refused(client.consumer, "t", **given)
    assert says.startswith(f"consumer() has no option {name}: ") and meant in says


@pytest.mark.parametrize("client", [UNOPENED, BLOCKING])
def test_producers_and_transforms_say_it_too(client: Any) -> None:
    assert "do you mean linger=0.005, in seconds?" in refused(client.producer, linger_ms=5)
    assert "do you mean compression='zstd'?" in refused(client.producer, compression_type="zstd")
    assert "do you mean batch_size=9?" in refused(client.producer, max_batch_size=9)
    assert "until delivery_timeout or api_timeout has passed" in refused(client.producer, retries=3)
    given = {"group": "g", "transactional_id": "x", "linger_ms": 5}
    assert "do you mean linger=0.005, in seconds?" in refused(client.transform, "t", **given)


def test_all_unknown_options_are_named_at_once() -> None:
    says = refused(UNOPENED.consumer, "t", group_id="g", max_poll_records=1)
    assert "group='g'" in says and "max_records=1" in says


@pytest.mark.parametrize("name", ["sasl_plain_password", "ssl_password", "sasl.password", "ssl.key.password"])
def test_no_advice_shows_a_password(name: str) -> None:
    says = refused(UNOPENED.producer, **{name: "hunter2"})
    assert "hunter2" not in says and "docs/security.md" in says


def test_a_dict_of_kafkas_names_is_sent_to_from_kafka_config() -> None:
    config = {"bootstrap.servers": "b:9092", "sasl.password": "hunter2"}
    for call in (ottla.connect, UNOPENED.producer, UNOPENED.consumer):
        says = refused(call, config)
        assert "from_kafka_config" in says and "hunter2" not in says


def test_every_name_of_kafkas_leads_to_an_option_or_to_a_reason() -> None:
    for name in (*MEANINGS, *SAME):
        for call in ("connect", "producer", "consumer", "share_consumer"):
            spelled = name.replace(".", "_")
            if spelled in _CALLS[call]:
                continue
            function = ottla.connect if call == "connect" else getattr(UNOPENED, call)
            says = refused(function, **{spelled: 1}).partition(": ")[2]
            means = MEANINGS[SAME.get(name, name)]
            assert says.startswith(("do you mean", "it is an option of")) if isinstance(means, To) else says, name


def test_what_is_decorated_keeps_its_signature() -> None:
    assert "group" in inspect.signature(Client.consumer).parameters
    assert "linger" in inspect.signature(Client.producer).parameters


@pytest.mark.parametrize(
    ("wrong", "advice"),
    [
        ({"num_partitions": 3}, "do you mean partitions?"),
        ({"timeout": 3}, "api_timeout and delivery_timeout"),
        ({"config": {}}, "do you mean configs?"),
    ],
)
async def test_an_unknown_argument_of_a_call_is_answered_with_advice(wrong: dict[str, Any], advice: str) -> None:
    expected = f"create_topic() has no option {next(iter(wrong))}: {advice}"
    assert expected in refused(BLOCKING.create_topic, "t", **wrong)
    awaited: Any = Client.create_topic
    assert inspect.iscoroutinefunction(awaited)
    with pytest.raises(TypeError, match=re.escape(expected)):
        await awaited(None, "t", **wrong)
