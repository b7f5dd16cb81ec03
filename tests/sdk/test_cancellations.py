"""A cancellation at each suspension of each public method, and between all events while it waits."""

import gc
import types
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import pytest

from ottla.errors import Closed, OttlaError
from ottla.sdk.client import Client
from ottla.sdk.consumer import Batch, Consumer
from ottla.sdk.core import ClientCore
from ottla.sdk.outcome import Outcome
from ottla.sdk.producer import Producer
from ottla.sdk.share_consumer import ShareConsumer, SharedRecord
from ottla.sdk.steps import Steps
from ottla.sdk.timers import Timer
from tests.brokerlite.machine import a_batch, records_of
from tests.sdk import cancelling_shares, cancelling_streams  # noqa: F401 # registers scenarios
from tests.sdk.cancelling import HOUSEKEEPING, SCENARIOS, Fate, Scenario, public
from tests.sdk.virtual import Cancelled, Dropped, Plan, Virtual, Watched

MOMENT = 1.5
"""Seconds for the client's background work."""


@dataclass
class VirtualRun:
    """Plays a scenario in a virtual loop.

    Attributes:
        census: the objects alive, each time that the client should be at rest.
        asked: the requests of the call.
        after: the requests written after its cancellation and before the next call.
    """

    virtual: Virtual
    census: list[Counter[str]] = field(default_factory=list)
    asked: set[str] = field(default_factory=set)
    after: set[str] = field(default_factory=set)
    fate: Fate | None = None
    _written: int | None = None

    @property
    def points(self) -> int:
        return self.virtual.loop.points

    @property
    def suspensions(self) -> list[int]:
        """The points at which the call began to wait."""
        return self.virtual.loop.suspensions

    def connect(self, **options: Any) -> Client:
        return self.virtual.connect(**options)

    async def topic(self, name: str, *batches: Sequence[bytes], partitions: int = 1, **configs: str) -> None:
        machine = self.virtual.machine
        given = {key.replace("_", "."): value for key, value in configs.items()}
        machine.now = self.virtual.loop.now
        machine.core.create_topic(name, partitions, given)
        for partition in range(partitions):
            machine.produce(*(a_batch(*each) for each in batches), topic=name, partition=partition)

    async def stored(self, name: str) -> list[bytes]:
        log = self.virtual.machine.log(name)
        return [record.value or b"" for record in records_of(log.read(0, 2**24) if log.end_offset else b"")]

    async def cancelling(self, call: Callable[[], Awaitable[Any]]) -> Fate:
        loop, sent = self.virtual.loop, self.virtual.sent
        loop.delivered, began = 0, len(sent)
        fate = self.fate = Fate()
        try:
            fate.value = await Watched(loop, call())
        except (Cancelled, Dropped) as cancelled:
            fate.cancelled, fate.error = True, cancelled
        except OttlaError as error:
            fate.error = error
        assert fate.cancelled or not loop.delivered, f"a cancellation was swallowed: {fate}"
        self.asked = {_name(each) for each in sent[began:]}
        self._written = len(sent)
        return fate

    def beside(self, work: Coroutine[Any, Any, Any]) -> Outcome[None]:
        return self.virtual.loop.spawn(work, "another").ended

    def hold(self) -> None:
        self.virtual.held = []

    def answer_in(self, seconds: float) -> None:
        self.virtual.loop.later(seconds, self.virtual.answer_all)

    async def sleep(self, seconds: float) -> None:
        await self.virtual.loop.sleep(seconds)

    async def rest(self, client: Client) -> None:
        await self.virtual.loop.sleep(MOMENT)
        if self._written is not None:
            self.after = {_name(each) for each in self.virtual.sent[self._written :]}
            self._written = None
        self.census.append(census(client._driver.core))


def _name(message: Any) -> str:
    return type(message).__name__.removesuffix("Request")


def play(scenario: Scenario, plan: Plan, **network: Any) -> VirtualRun:
    with Virtual(plan, **network) as virtual:
        run = VirtualRun(virtual)
        virtual.run(scenario.play(run))
        for driver in virtual.drivers:
            assert driver.stopped and not driver.core.timers.next, "a client is not closed"
            assert not (driver.core.parts or driver.core.members or driver.core._closers)
        assert not virtual.links, "connections are still open"
        assert not virtual.watching, "watchdogs still run"
    return run


def census(core: ClientCore) -> Counter[str]:
    """All objects in a client's core, counted by kind; timers and outcomes count only while they are pending."""
    found: Counter[str] = Counter()
    for each in _held(core):
        kind = type(each)
        if isinstance(each, Timer):
            if each.call is not None and _called(each.call) not in _BY_THEMSELVES:
                found[f"timer of {_called(each.call)}"] += 1
        elif isinstance(each, Outcome):
            found[f"{kind.__name__} that waits"] += not each.done
        else:
            found[f"{kind.__module__}.{kind.__qualname__}"] += 1
    return +found


_THROUGH = (dict, list, tuple, set, frozenset, deque, partial, types.MethodType, types.CellType, types.GeneratorType)
_KNOWN = {"Node", "Topic", "Partition"}
"""Types that describe the cluster, which a client may keep."""


@cache
def _looked_at(kind: type) -> tuple[bool, bool]:
    """Whether to count objects of a type, and whether to look into them."""
    ours = kind.__module__.startswith("ottla.sdk")
    return ours and kind.__name__ not in _KNOWN, ours or issubclass(kind, _THROUGH)


def _held(core: ClientCore) -> Iterator[Any]:
    seen: dict[int, Any] = {}
    left: list[Any] = [core]
    while left:
        each = left.pop()
        if id(each) in seen:
            continue
        seen[id(each)] = each
        if isinstance(each, types.FunctionType):
            left += each.__closure__ or ()
            continue
        counted, through = _looked_at(type(each))  # type: ignore[arg-type] # types are hashable
        if counted:
            yield each
        if through:
            left += filter(gc.is_tracked, gc.get_referents(each))  # untracked objects refer to no others


_BY_THEMSELVES = {"Connections._watch.<locals>.<lambda>"}
"""Timers of connections, because a cancellation may have opened or closed a connection."""


def _called(call: Any) -> str:
    while isinstance(call, partial):
        call = call.func
    return getattr(call, "__qualname__", repr(call))


# -- the table ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "of", [Client, Producer, Consumer, Batch, ShareConsumer, SharedRecord], ids=lambda each: each.__name__
)
def test_each_public_method_that_can_be_awaited_has_a_scenario(of: type) -> None:
    assert {each.method for each in SCENARIOS if each.of is of} == public(of)


@pytest.mark.deep
@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
def test_a_cancellation_at_any_point(scenario: Scenario) -> None:
    clean = played(scenario)
    for at in spread(range(1, clean.points + 1), 100):
        compare(scenario, clean, play(scenario, Plan((at,))))


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
def test_a_cancellation_at_any_suspension_of_a_scope_that_stays_cancelled(scenario: Scenario) -> None:
    clean = played(scenario)
    for at in clean.suspensions:
        compare(scenario, clean, play(scenario, Plan((at,), sticky=True)))


@pytest.mark.deep
@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
def test_a_cancellation_at_any_point_of_a_scope_that_stays_cancelled(scenario: Scenario) -> None:
    clean = played(scenario)
    for at in spread([each for each in range(1, clean.points + 1) if each not in clean.suspensions], 60):
        compare(scenario, clean, play(scenario, Plan((at,), sticky=True)))


def within_a_block(scenario: Scenario) -> bool:
    """Python cannot await in a dropped coroutine, so dropping one inside a client's block raises an error."""
    return scenario.play.__name__.startswith("a_block")


@pytest.mark.slow
@pytest.mark.parametrize("scenario", [each for each in SCENARIOS if not within_a_block(each)], ids=str)
def test_a_coroutine_that_is_dropped_at_any_suspension(scenario: Scenario) -> None:
    clean = played(scenario)
    for at in clean.suspensions:
        run = play(scenario, Plan((at,), drop=True))
        assert run.fate is not None and run.fate.cancelled
        compare(scenario, clean, run)


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
def test_a_second_cancellation_while_the_first_is_seen_to(scenario: Scenario) -> None:
    clean = played(scenario)
    for first in clean.suspensions:
        cancel_twice(scenario, clean, first)


@pytest.mark.deep
@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
def test_a_second_cancellation_at_any_point_after_the_first_at_any_point(scenario: Scenario) -> None:
    clean = played(scenario)
    for first in spread([each for each in range(1, clean.points + 1) if each not in clean.suspensions], 15):
        cancel_twice(scenario, clean, first)


def cancel_twice(scenario: Scenario, clean: VirtualRun, first: int) -> None:
    once = play(scenario, Plan((first,)))
    for second in range(first + 1, once.points + 1):
        compare(scenario, clean, play(scenario, Plan((first, second))))


@pytest.mark.deep
@pytest.mark.parametrize("scenario", SCENARIOS, ids=str)
def test_a_cancellation_while_requests_are_written_in_pieces(scenario: Scenario) -> None:
    clean = played(scenario, piece=50)
    for at in spread(range(1, clean.points + 1), 40):
        compare(scenario, clean, play(scenario, Plan((at,)), piece=50))


def spread(points: Sequence[int], most: int) -> Sequence[int]:
    """All of the points, or an evenly spread selection if all would take too long."""
    return points[:: -(-len(points) // most) or 1]


_played: dict[tuple[str, str], VirtualRun] = {}


def played(scenario: Scenario, **network: Any) -> VirtualRun:
    """A run without a cancellation; all tests of a scenario share it."""
    of = str(scenario), str(network)
    if of not in _played:
        _played[of] = play(scenario, Plan(), **network)
    fate = _played[of].fate
    assert fate is not None and not fate.cancelled
    return _played[of]


# -- defects that these tests found -----------------------------------------------------------------------------------


def test_a_client_that_is_cancelled_while_its_members_say_good_bye_is_closed() -> None:
    with Virtual(Plan((1,))) as virtual:
        run = VirtualRun(virtual)

        async def scenario() -> None:
            await run.topic("t", [b"0"])
            client = run.connect()
            await client.__aenter__()
            consumer = client.consumer("t", group="g")
            await consumer.__aenter__()
            await consumer.__anext__()
            run.hold()
            other = virtual.loop.spawn(client.list_topics(), "other")
            await virtual.loop.sleep(0.1)
            fate = await run.cancelling(lambda: client.__aexit__(None, None, None))
            assert fate.cancelled
            await virtual.loop.sleep(0.1)
            assert isinstance(other.raised, Closed), "a closed client leaves no call waiting"

        virtual.run(scenario())


def test_a_call_that_is_dropped_tidies_up_inside_the_gate() -> None:
    entered: list[int] = []

    def steps(core: ClientCore) -> Steps[None]:
        try:
            yield Outcome()
        finally:
            entered.append(core.gate.entered[0])
            core.run(lambda: entered.append(core.gate.entered[0]))

    with Virtual(Plan((1,), drop=True)) as virtual:
        run = VirtualRun(virtual)

        async def scenario() -> None:
            async with run.connect() as client:
                driver = client._driver
                assert (await run.cancelling(lambda: driver.run(steps(driver.core)))).cancelled
                await virtual.loop.sleep(0.0)
                assert entered == [1, 0], "its callbacks run in the next turn"

        virtual.run(scenario())


def compare(scenario: Scenario, clean: VirtualRun, run: VirtualRun) -> None:
    more = [found - was for found, was in zip(run.census, clean.census, strict=True)]
    assert not more[-1], f"left behind: {more}"
    if run.fate is not None and run.fate.cancelled:
        assert not run.after & clean.asked - HOUSEKEEPING - scenario.goes_on, "a cancelled call sent a request"
