"""A flow: a machine's generator, its waits, and its ends."""

import contextlib

import pytest

from ottla.codec.apis.heartbeat import HeartbeatRequest
from ottla.errors import Closed, OttlaError, TimeoutExpired
from ottla.sdk.flow import Flow, FlowExpired, LoneFlow, ask, sleep
from ottla.sdk.outcome import Outcome
from ottla.sdk.steps import Outside, Steps
from tests.sdk.coordinator import Coordinator


@pytest.fixture
def world() -> Coordinator:
    return Coordinator({"t": 1})


def yield_from(outcome: Outcome[str]) -> Steps[None]:
    yield outcome


def waits_for(outcome: Outcome[str], log: list[str]) -> Steps[str]:
    log.append("begun")
    try:
        yield outcome
    finally:
        log.append("closed")
    return outcome.result()


def test_a_flow_begins_at_once_and_continues_in_a_later_poll(world: Coordinator) -> None:
    wait, log = Outcome[str](), list[str]()
    flow = Flow(world.core, waits_for(wait, log))
    assert log == ["begun"]
    wait.succeed("the value")
    assert not flow.outcome.done, "the code that settles an outcome must not call the waiting machine"
    world.run()
    assert flow.outcome.result() == "the value" and log == ["begun", "closed"]


def test_an_error_of_the_steps_is_the_error_of_the_outcome(world: Coordinator) -> None:
    wait = Outcome[str]()
    flow = Flow(world.core, waits_for(wait, []))
    wait.fail(OttlaError("no"))
    world.run()
    assert flow.outcome.error is wait.error


def test_a_cancelled_flow_closes_its_generator_and_cancels_its_wait(world: Coordinator) -> None:
    wait, log = Outcome[str](), list[str]()
    flow = Flow(world.core, waits_for(wait, log))
    flow.cancel()
    assert log == ["begun", "closed"] and wait.done
    world.run()
    assert log == ["begun", "closed"]


def test_a_step_may_end_its_own_flow(world: Coordinator) -> None:
    second, log = Outcome[None](), list[str]()

    def steps() -> Steps[None]:
        yield from sleep(world.core, 1.0)
        flow.cancel()
        try:
            yield second
            log.append("continued")
        finally:
            log.append("closed")

    flow = Flow(world.core, steps())
    world.later(1.0)
    assert log == ["closed"] and second.done


def test_the_deadline_is_raised_at_the_wait_and_the_steps_may_go_on(world: Coordinator) -> None:
    waits = [Outcome[None](), Outcome[None]()]

    def steps() -> Steps[str]:
        try:
            yield waits[0]
        except FlowExpired:
            yield waits[1]
        return "after all"

    flow = Flow(world.core, steps(), deadline=5.0)
    world.later(5.0)
    assert waits[0].done and not flow.outcome.done
    waits[1].succeed(None)
    world.run()
    assert flow.outcome.result() == "after all"


def test_without_a_deadline_in_the_steps_the_flow_fails_with_it(world: Coordinator) -> None:
    flow = Flow(world.core, waits_for(Outcome(), []), deadline=5.0)
    world.later(5.0)
    assert isinstance(flow.outcome.error, TimeoutExpired)


def test_a_flow_ends_with_its_client(world: Coordinator) -> None:
    log: list[str] = []
    flow = Flow(world.core, waits_for(Outcome(), log))
    world.core.close(world.now)
    assert isinstance(flow.outcome.error, Closed) and log == ["begun", "closed"]
    late = Flow(world.core, waits_for(Outcome(), log))
    assert isinstance(late.outcome.error, Closed) and log == ["begun", "closed"]


@pytest.mark.parametrize("error", [ValueError("its own"), GeneratorExit(), KeyboardInterrupt()])
def test_the_users_code_runs_outside_of_the_gate_and_its_error_is_raised_at_the_wait(
    world: Coordinator, error: BaseException
) -> None:
    caught: list[BaseException] = []

    def call() -> str:
        with world.core.gate:  # free, or this raises
            pass
        raise error

    def steps() -> Steps[None]:
        assert (yield Outside(lambda: "a value")) == "a value"
        try:
            yield Outside(call)
        except BaseException as raised:
            caught.append(raised)

    flow = Flow(world.core, steps())
    # Ctrl-C also reaches the code that ran the call.
    with pytest.raises(KeyboardInterrupt) if isinstance(error, KeyboardInterrupt) else contextlib.nullcontext():
        world.run()
    world.run()
    assert caught == [error] and flow.outcome.done


def test_the_users_code_is_not_called_for_a_flow_that_has_ended(world: Coordinator) -> None:
    called: list[str] = []

    def steps(name: str) -> Steps[None]:
        yield from sleep(world.core, 1.0)
        if name == "by itself":
            flows[name].cancel()
        yield Outside(lambda: called.append(name))

    flows = {name: Flow(world.core, steps(name)) for name in ("by itself", "by its owner", "never")}
    world.core.later(1.0, lambda now: flows["by its owner"].cancel())  # after the step that wants the call
    world.later(1.0)
    assert called == ["never"]


def test_an_error_of_a_flow_that_nobody_waits_for_ends_the_step_that_raises_it(world: Coordinator) -> None:
    wait = Outcome[None]()

    def steps() -> Steps[None]:
        yield wait
        raise OttlaError("a bug")

    LoneFlow(world.core, steps())
    wait.succeed(None)
    with pytest.raises(OttlaError, match="a bug"):
        world.run()


def test_a_flow_that_nobody_waits_for_ends_quietly_with_its_client_and_with_its_owner(world: Coordinator) -> None:
    waits = [Outcome[str](), Outcome[str]()]
    flows = [LoneFlow(world.core, (yield_from(each))) for each in waits]
    flows[0].cancel()
    world.core.close(world.now)
    assert all(each.outcome.done for each in flows)
    world.run()


def test_a_request_that_was_not_sent_yet_never_is_once_its_flow_has_ended(world: Coordinator) -> None:
    def steps() -> Steps[None]:
        node = world.core.any_node()
        request = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
        yield ask(world.core, node, request, 30.0, channel="its own")

    flows = [Flow(world.core, steps()) for _ in range(2)]
    flows[0].cancel()
    world.run()
    assert len(world.pending(HeartbeatRequest)) == 1


def test_a_sleep_that_is_cut_off_leaves_no_timer(world: Coordinator) -> None:
    before = {timer for _, _, timer in world.core.timers._heap if timer.call}

    def steps() -> Steps[None]:
        yield from sleep(world.core, 100.0)

    Flow(world.core, steps()).cancel()
    world.run()
    assert {timer for _, _, timer in world.core.timers._heap if timer.call} == before
