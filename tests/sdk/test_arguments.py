"""Whoever gives what does not fit hears which argument it is, what he gave, and what would do."""

import inspect
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial, wraps
from typing import Any, Literal

import pytest

import ottla
from ottla.errors import ConfigurationError
from ottla.sdk.admin import CommittedOffset
from ottla.sdk.arguments import checked, derived, described, fitting, is_async, refused_coroutine
from ottla.sdk.group.assignors import Assignor
from ottla.testing import Broker
from tests.sdk.loops import Loop

Where = Literal["beginning", "end"] | datetime | int


class DeliveryCallback(StrEnum):
    ALL = "all"


@pytest.mark.parametrize(
    ("hint", "good", "bad"),
    [
        (float, [1, 0.5], ["45", None, True]),
        (int, [1, -1], [1.5, False, b"1"]),
        (str | None, ["", None], [b"g", 1]),
        (Literal["all"] | int, ["all", DeliveryCallback.ALL, 1], ["1", True, None]),
        (Literal[1], [1], [True, 1.0]),
        (tuple[()], [()], [(1,), []]),
        (Where, ["end", 3, datetime.min], ["latest", timedelta(1), [3]]),
        (Mapping[tuple[str, int], int], [{}, {("t", 0): 1}], [{"t": 0}, {("t", "0"): 1}, {("t",): 1}, [("t", 0)]]),
        (Sequence[str], [(), ["a"]], ["a", {"a"}, [b"a"], None]),
        (Iterable[tuple[str, int]], [iter("t"), [("t", 0)], {("t", 0): 1}], ["t", ["t"], [["t", 0]], 0, {"t": 0}]),
        (Callable[[bytes], int] | None, [len, None], [5]),
        (str | Sequence[str | Assignor], ["range", ["range"]], [5, [5]]),
        (Counter[str], [Counter(), Counter("ab")], [{}, Counter([1])]),
        (CommittedOffset, [CommittedOffset(1)], [1]),
    ],
)
def test_what_fits_is_what_the_annotation_says(hint: Any, good: list[Any], bad: list[Any]) -> None:
    fits = fitting(hint)
    assert [each for each in good if not fits(each)] == []
    assert [each for each in bad if fits(each)] == []


@pytest.mark.parametrize(
    ("hint", "words"),
    [
        (float, "a number"),
        (Any, "anything"),
        (dict[str, Any], "{a string: anything}"),
        (Counter[str], "{a string: anything}"),
        (tuple[()], "()"),
        (str | None, "a string or None"),
        (Mapping[tuple[str, int], Where], "{(a string, an integer): 'beginning', 'end', a datetime or an integer}"),
        (str | Sequence[str], "a string or several, each a string"),
        (Callable[[bytes], int], "a function"),
        (Assignor, "an object with name, cooperative, user_data, assign"),
    ],
)
def test_what_would_fit_is_said_in_words(hint: Any, words: str) -> None:
    assert described(hint) == words


def test_what_is_checked_stays_what_it_was() -> None:
    @checked
    def f(self: object, *names: str, wait: float = 1.0) -> tuple[str, ...]:
        """Doc."""
        return names

    assert f(1, "a", wait=2) == ("a",) and f.__doc__ == "Doc."
    with pytest.raises(ConfigurationError, match="wait must be a number, not 'long'"):
        f(1, wait="long")  # type: ignore[arg-type] # on purpose
    with pytest.raises(TypeError, match="unexpected keyword"):
        f(1, weit=2)  # type: ignore[call-arg] # on purpose
    with pytest.raises(TypeError, match="missing 1 required"):
        f()  # type: ignore[call-arg] # on purpose


async def test_what_is_awaited_can_still_be_seen_to_be() -> None:
    @checked
    async def f(wait: float) -> float:
        return wait

    assert inspect.iscoroutinefunction(f) and inspect.iscoroutinefunction(ottla.Client.create_topic)
    assert not inspect.iscoroutinefunction(ottla.Client.producer)
    assert await f(2) == 2
    with pytest.raises(ConfigurationError, match="wait must be a number, not 'long'"):
        await f("long")  # type: ignore[arg-type] # on purpose


class Awaited:
    async def __call__(self) -> None:
        pass


def test_what_has_to_be_awaited_is_what_returns_a_coroutine() -> None:
    assert all(map(is_async, (Awaited(), Awaited().__call__, partial(Awaited()), partial(Awaited().__call__))))
    assert not any(map(is_async, (Awaited, print, partial(print), "told")))


class Listener(ottla.RebalanceListener):
    def assigned(self, places: Any) -> None:  # type: ignore[override] # on purpose
        pass


class Interceptor(ottla.ConsumerInterceptor):
    async def on_consume(self, batch: Any) -> None:  # type: ignore[override] # on purpose
        pass


class Greedy(ottla.RebalanceListener):
    async def revoked(self, places: Any, extra: Any) -> None:  # type: ignore[override] # on purpose
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
        (Greedy(), ottla.RebalanceListener, r"Greedy\.revoked is called with \(places\), .* argument: 'extra'"),
        (Deaf(), ottla.RebalanceListener, r"Deaf\.lost is called with \(places\), .* too many"),
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
        async def revoked(p: Any, extra: int = 0) -> None:
            pass

        @with_more
        async def lost(self, places: Any, more: str) -> None:
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
    async def method(self: object, places: object) -> None:
        raise AssertionError("nobody calls it")

    async def right(self: object, places: object) -> None:
        pass

    asked = {each: right for each in ("assigned", "revoked", "lost") if each != meant}
    for others in (asked, {}):
        listener = type("Mine", (ottla.RebalanceListener,), {name: method, **others})()
        with pytest.raises(ConfigurationError, match=rf"Mine\.{name} is never called: .*do you mean {meant}\?"):
            derived(listener, ottla.RebalanceListener)
    # Who has it, too, means something else by the other.
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
        raise AssertionError("nobody calls it")

    owner = type("Mine", (base,), {written: vars(base)[written], name: own})()
    setattr(owner, written, partial(getattr(owner, written)))  # the owner's own, and awaited as the base's is
    if meant is None:
        derived(owner, base)
    else:
        with pytest.raises(ConfigurationError, match=rf"Mine\.{name} is never called: .*do you mean {meant}\?"):
            derived(owner, base)


def test_who_writes_all_methods_may_name_others_as_he_likes() -> None:
    class Whole(ottla.RebalanceListener):
        async def assigned(self, places: Any) -> None:
            pass

        async def revoked(self, places: Any) -> None:
            pass

        async def lost(self, places: Any) -> None:
            pass

        def on_shutdown(self) -> None:
            pass

        def on_partitions_assigned(self) -> None:
            pass

    derived(Whole(), ottla.RebalanceListener)


def test_what_hears_nothing_is_refused_and_what_has_other_methods_is_not() -> None:
    class Both(ottla.RebalanceListener, ottla.ConsumerInterceptor):
        on = 1

        async def lost(self, places: Any) -> None:
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
    with pytest.raises(ConfigurationError, match=r"never told anything: .* has assigned, revoked and lost; write at"):
        derived(ottla.RebalanceListener(), ottla.RebalanceListener)


def test_options_of_the_wrong_type_are_refused_by_name() -> None:
    wrong: list[tuple[str, dict[str, Any]]] = [
        ("request_timeout must be a number of seconds from .* not '30'", {"request_timeout": "30"}),
        ("client_id must be a string, not b'me'", {"client_id": b"me"}),
        ("max_request_size must be a number of bytes from .* not None", {"max_request_size": None}),
    ]
    for message, options in wrong:
        with pytest.raises(ConfigurationError, match=message):
            ottla.connect("b:1", **options)


async def test_arguments_of_the_wrong_type_are_refused_by_name_and_nothing_is_done(
    loop: Loop, ottla_broker: Broker
) -> None:
    ottla_broker.create_topic("t")
    async with loop.connect(ottla_broker.bootstrap) as client, client.consumer("t", group="g") as consumer:
        made: Any = client
        reads: Any = consumer
        wrong: list[tuple[str, Callable[[], Any]]] = [
            (
                "session_timeout must be a number, not '45'",
                partial(made.consumer, "t", group="g", session_timeout="45"),
            ),
            ("group must be a string or None, not b'g'", partial(made.consumer, "t", group=b"g")),
            ("topics are named by strings", partial(made.consumer, ["t", "u"])),
            (r"assign must be .*, not \{'t': 0\}", partial(made.consumer, assign={"t": 0})),
            ("listener must be a RebalanceListener or None", partial(made.consumer, "t", group="g", listener=print)),
            ("assigned is awaited", partial(made.consumer, "t", group="g", listener=Listener())),
            ("on_consume is called", partial(made.consumer, "t", interceptors=[Interceptor()])),
            ("on_assinged is never called", partial(made.consumer, "t", group="g", listener=Misspelt())),
            ("has on_consume and on_commit", partial(made.consumer, "t", interceptors=[ottla.ConsumerInterceptor()])),
            ("has on_send and on_ack", partial(made.producer, interceptors=[ottla.ProducerInterceptor()])),
            ("compression must be a string or .*, not None", partial(made.producer, compression=None)),
            ("linger must be a number, not '5'", partial(made.producer, linger="5")),
            ("partitioner must be a string, .*, not 5", partial(made.producer, partitioner=5)),
            ("partitions must be an integer, not '3'", partial(made.create_topic, "u", partitions="3")),
            ("groups must be several, each a string, not 'billing'", partial(made.describe_groups, "billing")),
            (r"places must be \{.*, not \{'t': 0\}", partial(reads.seek, {"t": 0})),
            ("places must be several, each .*, not 't'", partial(reads.pause, "t")),
            (r"offsets must be .*, not \{'t': 0\}", partial(reads.commit, {"t": 0})),
        ]
        for message, call in wrong:
            with pytest.raises(ConfigurationError, match=message):
                if inspect.isawaitable(called := call()):
                    await called
        assert await client.list_topics() == ["t"]


async def test_whoever_is_told_of_a_delivery_must_not_be_awaited(loop: Loop, ottla_broker: Broker) -> None:
    async def later(result: object) -> None:
        raise AssertionError("nobody awaits it")

    class DeliveryCallback:
        async def __call__(self, result: object) -> None:
            raise AssertionError("nobody awaits it")

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
    assert inspect.getcoroutinestate(returned) == inspect.CORO_CLOSED  # or Python would warn: never awaited
    assert ran == []


@pytest.mark.parametrize("returned", [None, 0, "text", [], object(), (each for each in "generator")])
def test_what_returns_anything_else_is_left_alone(returned: object) -> None:
    assert refused_coroutine("on_delivery", returned) is None


def test_what_returns_something_else_that_is_awaited_is_refused_too() -> None:
    class Later:
        def __await__(self) -> Iterator[None]:
            raise AssertionError("nobody awaits it")

    assert refused_coroutine("Mine.on_acknowledgement", Later()) is not None
