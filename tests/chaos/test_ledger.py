"""The judge of a chaos run finds each kind of broken promise, and accepts repeats and silences that have a reason."""

import copy
from collections.abc import Callable

import pytest

from tests.chaos.journal import Event, checksum
from tests.chaos.ledger import Bounds, Evidence, Verdict, judge

BOUNDS = Bounds(delivery=90.0, silence=60.0, handler=15.0)
LOG = {0: [(offset, b"p-0", b"%d ..." % offset) for offset in range(6)]}


def batch(time: float, first: int, next_: int) -> Event:
    return ["batch", time, 0, first, next_, next_ - first, checksum(LOG[0][first:next_])]


def evidence() -> Evidence:
    """Six records: the first consumer reads four of them, then its partition is revoked; the second reads the rest."""
    producer: list[Event] = []
    for number in range(6):
        producer.append(["sent", float(number), "p-0", number, "send"])
        producer.append(["acked", number + 0.5, "p-0", number, 0, number, 0.5])
    one: list[Event] = [["assigned", 0.0, {"0": 0}], batch(2.0, 0, 2), batch(4.0, 2, 4), ["revoked", 5.0, [0]]]
    two: list[Event] = [["assigned", 6.0, {"0": 4}], batch(7.0, 4, 6)]
    journals = {"producer-1": producer, "consumer-1": one, "consumer-2": two}
    return Evidence(journals, {}, {}, copy.deepcopy(LOG), {0: [2, 4, 6]}, [(3.0, {0: 2}), (8.0, {0: 6})])


def verdict(change: Callable[[Evidence], object]) -> Verdict:
    given = evidence()
    change(given)
    return judge(given, BOUNDS)


def read_again_from(first: int) -> Callable[[Evidence], object]:
    def change(given: Evidence) -> None:
        given.journals["consumer-2"][:] = [["assigned", 6.0, {"0": first}], batch(7.0, first, 6)]

    return change


def test_a_run_in_which_all_is_well_breaks_nothing() -> None:
    found = judge(evidence(), BOUNDS)
    assert found.broken == [] and found.repeats == {}
    assert {who: each.seconds for who, each in found.silences.items()} == {"consumer-1": 1.5, "consumer-2": 2.5}


BREAKS: dict[str, Callable[[Evidence], object]] = {
    "acknowledged and lost": lambda e: e.log[0].pop(),
    "stored twice": lambda e: e.log[0].append((6, b"p-0", b"3 ...")),
    "out of order": lambda e: e.log[0].__setitem__(slice(2, 4), [(2, b"p-0", b"3 ..."), (3, b"p-0", b"2 ...")]),
    "a send without an end": lambda e: e.journals["producer-1"].pop(),
    "a send after its deadline": lambda e: e.journals["producer-1"][-1].__setitem__(-1, 96.0),
    "never read by the group": lambda e: e.journals["consumer-2"].pop(),
    "read otherwise than it is stored": lambda e: e.journals["consumer-2"][-1].__setitem__(-1, 7),
    "skipped or repeated by one member": lambda e: e.journals["consumer-1"].insert(3, batch(4.5, 2, 4)),
    "read again without a reason": read_again_from(2),
    "a commit went backwards": lambda e: e.commits[0].append(5),
    "goes on so": lambda e: e.answers.extend([(9.0 + each, {0: 4}) for each in range(3)]),
    "a partition was silent for too long": lambda e: e.journals["consumer-2"].__setitem__(-1, batch(70.0, 4, 6)),
    "a client died": lambda e: e.died.__setitem__("consumer-1", "exit code 1"),
}


@pytest.mark.parametrize("promise", BREAKS)
def test_a_broken_promise_is_found(promise: str) -> None:
    found = verdict(BREAKS[promise])
    assert any(promise in each for each in found.broken), found.broken


def killed(given: Evidence) -> None:
    given.journals["consumer-1"].pop()
    given.killed["consumer-1"] = 5.0


REASONS: dict[str, tuple[str, Callable[[Evidence], object]]] = {
    "a loss": ("lost", lambda e: e.journals["consumer-1"].__setitem__(-1, ["lost", 7.5, [0]])),
    "a kill": ("killed", killed),
    "a commit that failed while the partition was given up": (
        "revoked, commit refused",
        lambda e: e.journals["consumer-1"].append(["refused", 5.5, "the coordinator said no"]),
    ),
}


@pytest.mark.parametrize("name", REASONS)
def test_reading_again_is_explained_by(name: str) -> None:
    reason, change = REASONS[name]

    def both(given: Evidence) -> None:
        read_again_from(2)(given)
        change(given)

    found = verdict(both)
    assert found.broken == [] and found.repeats == {reason: 2}


def test_a_stale_answer_of_the_coordinator_is_counted_and_forgiven() -> None:
    found = verdict(lambda e: e.answers.extend([(9.0, {0: 4}), (10.0, {0: 6})]))
    assert found.broken == [] and found.stale_answers == 1


def slow_from(start: float, seconds: float) -> Callable[[Evidence], object]:
    """The second consumer has a slow handler, and reads the rest at 70 s: 65.5 s after it was stored."""

    def change(given: Evidence) -> None:
        given.journals["consumer-2"][1:] = [["slow", start, seconds], batch(70.0, 4, 6)]

    return change


def silence_of(found: Verdict) -> float:
    return found.silences["consumer-2"].seconds


def test_a_slow_handler_of_the_owner_is_no_silence() -> None:
    found = verdict(slow_from(10.0, 12.0))
    assert found.broken == [] and silence_of(found) == 65.5 - 12.0


def test_a_handler_is_slow_at_most_until_its_member_must_have_left() -> None:
    assert silence_of(verdict(slow_from(10.0, 40.0))) == 65.5 - 15.0


def test_a_slow_handler_counts_from_when_its_member_has_the_partition_and_a_record_is_there() -> None:
    assert silence_of(verdict(slow_from(0.0, 12.0))) == 65.5 - 6.0


def test_a_slow_handler_ends_when_its_member_is_killed() -> None:
    def change(given: Evidence) -> None:
        given.journals["consumer-2"][1:] = [["slow", 10.0, 12.0]]
        given.journals["consumer-3"] = [["assigned", 60.0, {"0": 4}], batch(70.0, 4, 6)]
        given.killed["consumer-2"] = 14.0

    assert verdict(change).silences["consumer-3"].seconds == 65.5 - 4.0


def test_a_slow_handler_ends_when_another_member_has_the_partition() -> None:
    def change(given: Evidence) -> None:
        given.journals["consumer-2"][1:] = [["slow", 10.0, 12.0], ["lost", 22.0, [0]]]
        given.journals["consumer-3"] = [["assigned", 17.0, {"0": 4}], batch(70.0, 4, 6)]

    assert verdict(change).silences["consumer-3"].seconds == 65.5 - 7.0


def test_a_slow_handler_of_another_member_excuses_nobody() -> None:
    def change(given: Evidence) -> None:
        given.journals["consumer-1"].append(["slow", 10.0, 12.0])
        given.journals["consumer-2"][1:] = [batch(70.0, 4, 6)]

    found = verdict(change)
    assert any("silent" in each for each in found.broken) and silence_of(found) == 65.5
