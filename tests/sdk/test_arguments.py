"""The error for a wrong argument names it, shows its value, and says which values fit."""

import inspect
import re
from collections.abc import Callable, Iterator
from functools import partial, wraps
from typing import Any

import pytest

import ottla
from ottla.errors import ConfigurationError, EncodeError
from ottla.sdk.arguments import (
    by_topic_partition,
    derived,
    integer,
    is_async,
    listed,
    refused_coroutine,
    scoped,
    strings,
)
from ottla.testing import Broker
from tests.sdk.loops import Loop


@pytest.mark.parametrize(
    ("check", "good", "bad"),
    [
        (strings, [(), ["a"], {"a"}, iter("a")], ["a", b"a", [b"a"], ["a", 1]]),
        (
            listed,
            [[], [("t", 0)], {("t", 0): 1}, iter([("t", 0)])],
            ["t", b"t", ["t"], [["t", 0]], [("t", "0")], [("t",)], [("t", True)], [(b"t", 0)], {"t": 0}],
        ),
        (scoped, [["t", ("t", 0)], iter("t")], ["t", [5], [("t", "0")]]),
        (
            by_topic_partition,
            [{}, {("t", 0): "anything"}],
            ["t", [("t", 0)], {"t": 0}, {("t", "0"): 1}, {("t",): 1}, {("t", 0, 0): 1}, None],
        ),
        (integer, [0, -1], ["1", 1.0, True, None]),
    ],
)
def test_what_python_would_take_apart_or_never_find_is_refused_by_name(
    check: Callable[[str, Any], Any], good: list[Any], bad: list[Any]
) -> None:
    for each in good:
        check("places", each)
    for each in bad:
        with pytest.raises(ConfigurationError, match="places"):
            check("places", each)


def test_what_is_given_is_read_once_and_copied() -> None:
    assert listed("places", iter([("t", 0), ("u", 1)])) == [("t", 0), ("u", 1)]
    assert strings("groups", (each for each in "ab")) == ["a", "b"]
    offsets = {("t", 0): 5}
    assert by_topic_partition("offsets", offsets) == offsets and by_topic_partition("offsets", offsets) is not offsets


class Awaited:
    async def __call__(self) -> None:
        pass


def test_what_has_to_be_awaited_is_what_returns_a_coroutine() -> None:
    assert all(map(is_async, (Awaited(), Awaited().__call__, partial(Awaited()), partial(Awaited().__call__))))
    assert not any(map(is_async, (Awaited, print, partial(print), "told")))


class Listener(ottla.RebalanceListener):
    def assigned(self, consumer: Any, places: Any) -> None:  # type: ignore[override] # on purpose
        pass


class Interceptor(ottla.ConsumerInterceptor):
    async def on_consume(self, batch: Any) -> None:  # type: ignore[override] # on purpose
        pass


class Greedy(ottla.RebalanceListener):
    async def revoked(self, consumer: Any, places: Any, extra: Any) -> None:  # type: ignore[override] # on purpose
        pass


class Deaf(ottla.RebalanceListener):
    async def lost(self) -> None:  # type: ignore[override] # on purpose
        pass


class Forgetful(ottla.ProducerInterceptor):
    def on_acknowledgement(self, record: Any) -> None:  # type: ignore[override] # on purpose
        pass


class Empty(ottla.ConsumerInterceptor):
    on_commit = None  # type: ignore[assignment] # on purpose


class Misspelt(ottla.RebalanceListener):
    async def on_assinged(self, places: Any) -> None:
        pass


def test_methods_are_async_where_they_are_awaited_and_nowhere_else() -> None:
    def decorated(function: Any) -> Any:
        return wraps(function)(lambda *args: function(*args))

    class Decorated(ottla.RebalanceListener):
        lost = decorated(ottla.RebalanceListener.lost)

    derived(Decorated(), ottla.RebalanceListener)
    with pytest.raises(ConfigurationError, match=r"Listener\.assigned is awaited: write it with `async def`"):
        derived(Listener(), ottla.RebalanceListener)
    with pytest.raises(ConfigurationError, match=r"Interceptor\.on_consume is called and not awaited"):
        derived(Interceptor(), ottla.ConsumerInterceptor)


@pytest.mark.parametrize(
    ("owner", "base", "says"),
    [
        (
            Greedy(),
            ottla.RebalanceListener,
            r"revoked is called with \(consumer, places\), .* argument: 'extra'",
        ),
        (Deaf(), ottla.RebalanceListener, r"Deaf\.lost is called with \(consumer, places\), .* too many"),
        (Empty(), ottla.ConsumerInterceptor, r"Empty\.on_commit is called with \(offsets\), .* not a callable"),
        (Forgetful(), ottla.ProducerInterceptor, r"on_acknowledgement is called with \(record, result\), .* too many"),
    ],
)
def test_methods_that_cannot_be_called_with_what_they_will_be_are_refused(owner: Any, base: type, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        derived(owner, base)


def test_methods_may_take_what_they_are_given_in_any_way() -> None:
    def with_more(function: Any) -> Any:
        async def call(*given: Any) -> None:
            await function(*given, "more")

        return wraps(function)(call)

    class Liberal(ottla.RebalanceListener):
        async def assigned(self, *args: Any) -> None:
            pass

        @staticmethod
        async def revoked(c: Any, p: Any, extra: int = 0) -> None:
            pass

        @with_more
        async def lost(self, consumer: Any, places: Any, more: str) -> None:
            pass

    derived(Liberal(), ottla.RebalanceListener)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("on_assinged", "assigned"),
        ("on_partitions_assigned", "assigned"),
        ("on_partitions_revoked", "revoked"),
        ("on_partitions_lost", "lost"),
        ("on_lost", "lost"),
        ("onPartitionsAssigned", "assigned"),
        ("onPartitionsRevoked", "revoked"),
        ("onPartitionsLost", "lost"),
        ("on_assign", "assigned"),
        ("on_assignment", "assigned"),
        ("handle_revoked", "revoked"),
        ("asigned", "assigned"),
        ("revoke", "revoked"),
        ("losst", "lost"),
    ],
)
def test_a_misspelt_method_is_refused_with_what_is_meant(name: str, meant: str) -> None:
    async def method(self: object, consumer: object, places: object) -> None:
        raise AssertionError("the method was called")

    async def right(self: object, consumer: object, places: object) -> None:
        pass

    asked = {each: right for each in ("assigned", "revoked", "lost") if each != meant}
    for others in (asked, {}):
        listener = type("Mine", (ottla.RebalanceListener,), {name: method, **others})()
        with pytest.raises(ConfigurationError, match=rf"Mine\.{name} is never called: .*do you mean {meant}\?"):
            derived(listener, ottla.RebalanceListener)
    # A class that has both methods means something else by the first.
    derived(type("Mine", (ottla.RebalanceListener,), {name: method, meant: right})(), ottla.RebalanceListener)


@pytest.mark.parametrize(
    ("base", "written", "name", "meant"),
    [
        (ottla.ConsumerInterceptor, "on_commit", "onConsume", "on_consume"),
        (ottla.ConsumerInterceptor, "on_consume", "on_committed", "on_commit"),
        (ottla.ConsumerInterceptor, "on_consume", "commit", "on_commit"),
        (ottla.ProducerInterceptor, "on_send", "onAcknowledgement", "on_acknowledgement"),
        (ottla.ProducerInterceptor, "on_send", "on_acknowledged", "on_acknowledgement"),
        (ottla.ProducerInterceptor, "on_send", "on_ack", "on_acknowledgement"),
        (ottla.ProducerInterceptor, "on_acknowledgement", "on_error", None),
        (ottla.ProducerInterceptor, "on_acknowledgement", "on_end", None),
        (ottla.ProducerInterceptor, "on_acknowledgement", "resend", None),
        (ottla.ConsumerInterceptor, "on_commit", "on_close", None),
        (ottla.ConsumerInterceptor, "on_consume", "on_shutdown", None),
        (ottla.RebalanceListener, "assigned", "on_shutdown", None),
        (ottla.RebalanceListener, "assigned", "on_post", None),
        (ottla.RebalanceListener, "lost", "on", None),
        (ottla.RebalanceListener, "lost", "as_dict", None),
    ],
)
def test_only_what_is_likely_a_slip_of_a_method_that_is_not_written_is_refused(
    base: type, written: str, name: str, meant: str | None
) -> None:
    def own(self: object, *args: object) -> None:
        raise AssertionError("the method was called")

    owner = type("Mine", (base,), {written: vars(base)[written], name: own})()
    setattr(owner, written, partial(getattr(owner, written)))  # on the instance; awaitable like the base's
    if meant is None:
        derived(owner, base)
    else:
        with pytest.raises(ConfigurationError, match=rf"Mine\.{name} is never called: .*do you mean {meant}\?"):
            derived(owner, base)


def test_who_writes_all_methods_may_name_others_as_he_likes() -> None:
    class Whole(ottla.RebalanceListener):
        async def assigned(self, consumer: Any, places: Any) -> None:
            pass

        async def revoked(self, consumer: Any, places: Any) -> None:
            pass

        async def lost(self, consumer: Any, places: Any) -> None:
            pass

        def on_shutdown(self) -> None:
            pass

        def on_partitions_assigned(self) -> None:
            pass

    derived(Whole(), ottla.RebalanceListener)


def test_what_hears_nothing_is_refused_and_what_has_other_methods_is_not() -> None:
    class Both(ottla.RebalanceListener, ottla.ConsumerInterceptor):
        on = 1

        async def lost(self, consumer: Any, places: Any) -> None:
            pass

        def on_commit(self, offsets: Any) -> None:
            pass

        def close(self) -> None:
            pass

        def _on_assigned(self) -> None:
            pass

    derived(Both(), ottla.RebalanceListener)
    derived(Both(), ottla.ConsumerInterceptor)
    later = ottla.RebalanceListener()
    later.lost = Both().lost  # type: ignore[method-assign] # on purpose
    derived(later, ottla.RebalanceListener)
    with pytest.raises(ConfigurationError, match=r"never called: .* has assigned, revoked and lost; write at"):
        derived(ottla.RebalanceListener(), ottla.RebalanceListener)


def test_options_of_the_wrong_type_are_refused_by_name() -> None:
    wrong: list[tuple[str, dict[str, Any]]] = [
        ("request_timeout must be a number of seconds from .* not '30'", {"request_timeout": "30"}),
        ("client_id must be a string, not b'me'", {"client_id": b"me"}),
        ("max_request_size must be a whole number of bytes from .* not None", {"max_request_size": None}),
    ]
    for message, options in wrong:
        with pytest.raises(ConfigurationError, match=message):
            ottla.connect("b:1", **options)


async def test_what_the_caller_changes_later_in_its_arguments_has_no_effect(loop: Loop, ottla_broker: Broker) -> None:
    ottla_broker.create_topic("t")
    bootstrap, compression, interceptors = [ottla_broker.bootstrap], {"t": "zstd"}, list[Any]()
    connecting = loop.connect(bootstrap)
    bootstrap[0] = "no address:at all"
    async with connecting as client:
        producing = client.producer(compression=compression, interceptors=interceptors)
        compression["t"] = "brotli"
        interceptors.append("no interceptor")
        async with producing as producer:
            assert (await producer.send("t", b"v")).offset == 0


async def test_arguments_of_the_wrong_type_are_refused_by_name_and_nothing_is_done(
    loop: Loop, ottla_broker: Broker
) -> None:
    ottla_broker.create_topic("t")
    async with loop.connect(ottla_broker.bootstrap) as client, client.consumer("t", group="g") as consumer:
        made: Any = client
        reads: Any = consumer
        consume, produce = partial(made.consumer, "t"), made.producer
        wrong: list[tuple[str, Callable[[], Any]]] = [
            ("session_timeout must be a number .*, not '45'", partial(consume, group="g", session_timeout="45")),
            ("auto_commit must be a number .*, not '5'", partial(consume, group="g", auto_commit="5")),
            ("group must be a string that is not empty, not b'g'", partial(consume, group=b"g")),
            ("instance_id must be a string or None, not 5", partial(consume, group="g", instance_id=5)),
            ("assignor 5 is not a name", partial(consume, group="g", assignors=[5])),
            ("isolation must be 'read_uncommitted' or 'read_committed', not 1", partial(consume, isolation=1)),
            ("'latest' is not a place", partial(consume, start="latest")),
            ("topics are named by strings", partial(made.consumer, ["t", "u"])),
            ("pattern or deny must be a string, not b't'", partial(made.consumer, pattern=b"t")),
            ("pattern or deny must be a string, not b't'", partial(made.consumer, pattern=[b"t"])),
            ("assign: a partition is .*, not 't'", partial(made.consumer, assign={"t": 0})),
            ("print> is not a RebalanceListener", partial(consume, group="g", listener=print)),
            ("print> is not a ConsumerInterceptor", partial(consume, interceptors=[print])),
            ("assigned is awaited", partial(consume, group="g", listener=Listener())),
            ("on_consume is called", partial(consume, interceptors=[Interceptor()])),
            ("on_assinged is never called", partial(consume, group="g", listener=Misspelt())),
            ("has on_consume and on_commit", partial(consume, interceptors=[ottla.ConsumerInterceptor()])),
            ("has on_send and on_ack", partial(produce, interceptors=[ottla.ProducerInterceptor()])),
            ("acks must be 'all', 1 or 0, not '1'", partial(produce, acks="1")),
            ("acks must be 'all', 1 or 0, not True", partial(produce, acks=True)),
            ("compression must be a name, or one for each topic, not None", partial(produce, compression=None)),
            (r"compression must be a name, or \(name, level\), not 5", partial(produce, compression={"t": 5})),
            ("levels .*, not '9'", partial(produce, compression="zstd", compression_level="9")),
            ("linger must be a number of seconds .*, not '5'", partial(produce, linger="5")),
            ("batch_size must be a whole number of bytes .*, not 1.5", partial(produce, batch_size=1.5)),
            ("partitioner must be a name, a function .*, not 5", partial(produce, partitioner=5)),
            ("key_serializer must be a function, .*, not 'utf8'", partial(produce, key_serializer="utf8")),
            ("num_partitions: int wanted, not str", partial(made.create_topic, "u", partitions="3")),
            ("configs: 'x' must be a str, not 5: write '5'$", partial(made.create_topic, "u", configs={"x": 5})),
            ("configs must be a mapping, .*, not ''", partial(made.create_topic, "u", configs="")),
            ("count: int wanted, not str", partial(made.create_partitions, "t", "3")),
            ("configs: 'x' must be a str, not 5: write '5'$", partial(made.configure_topic, "t", {"x": 5})),
            ("configs must be a mapping, .*, not 'x'", partial(made.configure_topic, "t", "x")),
            ("the name of a setting must be a str, not 5", partial(made.configure_topic, "t", {5: None})),
            (r"resources\[0\].resource_name: str wanted, not int", partial(made.configure_topic, 5, {"x": "5"})),
            (r"topic_names\[0\]: str wanted, not list", partial(made.delete_topic, ["t"])),
            (r"topics\[0\].name: str wanted, not int", partial(made.describe_topic, 5)),
            (r"a partition is .*, not \('t', '0'\)", partial(made.leader, "t", "0")),
            (r"a partition is .*, not \(b't', 0\)", partial(made.fetch, b"t", 0, 0)),
            ("wanted: a partition is .*, not 't'", partial(made.offsets, {"t": 0})),
            ("wanted must be a mapping", partial(made.list_offsets, [("t", 0)])),
            ("groups must be a list, as in .'billing'., not 'billing'", partial(made.describe_groups, "billing")),
            ("groups must be a list, as in .'billing'., not 'billing'", partial(made.delete_groups, "billing")),
            ("states must be a list, as in .'Stable'., not 'Stable'", partial(made.list_groups, states="Stable")),
            ("each of groups must be a string, not 5", partial(made.group_lag, 5)),
            ("places must be a list, as in .'t'., not 't'", partial(made.committed, "g", "t")),
            ("key: str wanted, not int", partial(made.delete_offsets, 5, [("t", 0)])),
            ("topics must be a list, as in .'t'., not 't'", partial(made.reset_offsets, "x", "end", topics="t")),
            ("topics: a partition is .*, not 5", partial(made.reset_offsets, "x", "end", topics=[5])),
            ("shift_by must be an integer, not '5'", partial(made.reset_offsets, "x", shift_by="5")),
            ("an offset must be an integer, not '5'", partial(made.reset_offsets, "x", {("t", 0): "5"})),
            ("places: a partition is .*, not 't'", partial(reads.seek, {"t": 0})),
            ("'latest' is not a place", partial(reads.seek, {("t", 0): "latest"})),
            ("places must be a list, .*, not 't'", partial(reads.pause, "t")),
            (r"places: a partition is .*, not \('t', '0'\)", partial(reads.resume, [("t", "0")])),
            ("offsets: a partition is .*, not 't'", partial(reads.commit, {"t": 0})),
            ("offsets: a partition is .*, not 't'", partial(reads.commit_soon, {"t": 0})),
            ("places must be a list, .*, not 't'", partial(reads.committed, "t")),
        ]
        for message, call in wrong:
            with pytest.raises((ConfigurationError, EncodeError), match=message):
                if inspect.isawaitable(called := call()):
                    await called
        assert await client.list_topics() == ["t"]


async def test_whoever_is_told_of_a_delivery_must_not_be_awaited(loop: Loop, ottla_broker: Broker) -> None:
    async def later(result: object) -> None:
        raise AssertionError("the coroutine was awaited")

    class DeliveryCallback:
        async def __call__(self, result: object) -> None:
            raise AssertionError("the coroutine was awaited")

    heard: list[object] = []
    ottla_broker.create_topic("t")
    async with loop.connect(ottla_broker.bootstrap) as client, client.producer() as producer:
        for told in (later, partial(later), DeliveryCallback(), "told"):
            wrong: Any = told
            with pytest.raises(ConfigurationError, match="on_delivery is called, and not awaited"):
                producer.send_nowait("t", b"", on_delivery=wrong)
            with pytest.raises(ConfigurationError, match="on_delivery is called, and not awaited"):
                await producer.send_soon("t", b"", on_delivery=wrong)
            with pytest.raises(ConfigurationError, match="on_delivery is called, and not awaited"):
                await producer.send_many("t", [b""], on_delivery=wrong)
        await producer.send_many("t", [b"a", b"b"], on_delivery=heard.append)
        await producer.flush()
        assert len(heard) == 2


def test_what_returns_a_coroutine_is_refused_once_it_has_and_the_coroutine_is_closed() -> None:
    ran: list[object] = []

    async def store(result: object) -> None:
        ran.append(result)

    returned = (lambda result: store(result))("receipt")
    error = refused_coroutine("on_delivery", returned)
    assert isinstance(error, ConfigurationError)
    assert re.match(r"on_delivery is called, and not awaited, but returned .*store.*: write it without", str(error))
    assert inspect.getcoroutinestate(returned) == inspect.CORO_CLOSED  # otherwise Python would warn: never awaited
    assert ran == []


@pytest.mark.parametrize("returned", [None, 0, "text", [], object(), (each for each in "generator")])
def test_what_returns_anything_else_is_left_alone(returned: object) -> None:
    assert refused_coroutine("on_delivery", returned) is None


def test_what_returns_something_else_that_is_awaited_is_refused_too() -> None:
    class Later:
        def __await__(self) -> Iterator[None]:
            raise AssertionError("the coroutine was awaited")

    assert refused_coroutine("Mine.on_acknowledgement", Later()) is not None
