"""The judge of transfers finds each kind of broken promise, and accepts repeats and fencings that have a reason."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.chaos.fences import Programs
from tests.chaos.history import LONGEST, Evidence, Verdict, judge
from tests.chaos.journal import Event
from tests.interop.lines import Received

DEBITS, CREDITS = "debits", "credits"
READERS = ("ottla", "java")


def record(offset: int, key: str, amount: int) -> Received:
    return Received(0, offset, 0, key.encode(), b"%d" % amount)


def transaction(name: str, start: float, outcome: str) -> list[Event]:
    """The events of a debit and a credit, in three seconds; without an outcome, the program ends within them."""
    legs = [[DEBITS, name, -5], [CREDITS, f"{name}/0", 5]]
    events: list[Event] = [["begins", start, name, legs], ["open", start + 0.5, name]]
    if outcome != "aborted":
        events.append(["commits", start + 1.0, name])
    return [*events, ["over", start + 3.0, name, outcome, ""]] if outcome else events


def poll(time: float, topic: str, next_: int, *records: tuple[int, str, int]) -> Event:
    return ["poll", time, topic, 0, next_, [list(each) for each in records]]


def evidence() -> Evidence:
    """Two tellers with one transactional id, of which the second replaces the first, which was killed; and a reader.

    The transactions ``one-0`` and ``two-0`` are committed, ``one-1`` is aborted. The outcome of ``one-2`` is unknown,
    and its records are not visible. Each log has a record, a marker, two aborted records, their markers, and a record.
    """
    one = [*transaction("one-0", 0.0, "committed"), *transaction("one-1", 4.0, "aborted")]
    one += transaction("one-2", 8.0, "")
    reader: list[Event] = [["reads", 0.0, DEBITS, 0, 0], ["reads", 0.0, CREDITS, 0, 0]]
    reader += [poll(4.0, DEBITS, 2, (0, "one-0", -5)), poll(24.0, DEBITS, 8, (6, "two-0", -5))]
    reader += [poll(24.0, CREDITS, 8, (0, "one-0/0", 5), (6, "two-0/0", 5)), ["reads", 25.0, CREDITS, 0, 6]]
    reader += [poll(25.0, CREDITS, 8, (6, "two-0/0", 5))]
    names = ("teller-1", "teller-2", "teller-3")
    programs = Programs(
        dict(zip(names, (one, transaction("two-0", 20.0, "committed"), reader), strict=True)),
        ids=dict(zip(names, ("a", "a", "b"), strict=True)),
        timeouts=dict.fromkeys(names, 10.0),
        started=dict(zip(names, (0.0, 15.0, 0.0), strict=True)),
        killed=["teller-1"],
        died={},
    )
    read = {
        name: {
            DEBITS: [record(0, "one-0", -5), record(6, "two-0", -5)],
            CREDITS: [record(0, "one-0/0", 5), record(6, "two-0/0", 5)],
        }
        for name in READERS
    }
    return Evidence(programs, [], read)


def verdict(change: Callable[[Evidence], object]) -> Verdict:
    given = evidence()
    change(given)
    return judge(given)


def everywhere(change: Callable[[list[Received], list[Received]], object]) -> Callable[[Evidence], object]:
    """Change the debits and credits that each reader has read."""

    def all_of_them(given: Evidence) -> None:
        for read in given.readers.values():
            change(read[DEBITS], read[CREDITS])

    return all_of_them


def journal(name: str, change: Callable[[list[Event]], object]) -> Callable[[Evidence], object]:
    return lambda given: change(given.programs.journals[name])


def fenced(time: float) -> Callable[[Evidence], object]:
    return journal("teller-1", lambda events: events.append(["fenced", time, "a newer one has come"]))


def test_a_run_in_which_all_is_well_breaks_nothing() -> None:
    found = judge(evidence())
    assert found.broken == [] and found.found == {"killed, absent": 1}
    assert [each.outcome for each in found.transactions] == ["committed", "aborted", "", "committed"]
    assert sum(len(each.records) for each in found.polls) == 5


def insert_at(offset: int, name: str) -> Callable[[Evidence], object]:
    """Have every reader read both records of a transaction."""

    def insert(debits: list[Received], credits: list[Received]) -> None:
        debits.insert(1, record(offset, name, -5))
        credits.insert(1, record(offset, f"{name}/0", 5))

    return everywhere(insert)


BREAKS: dict[str, Callable[[Evidence], object]] = {
    "lost": everywhere(lambda debits, credits: (debits.pop(), credits.pop())),
    "a part of": everywhere(lambda debits, credits: credits.pop()),
    "aborted, but visible": insert_at(2, "one-1"),
    "stored twice": everywhere(lambda debits, credits: debits.append(record(9, "two-0", -5))),
    "records that no teller has sent": everywhere(lambda debits, credits: debits.append(record(9, "three-0", -5))),
    "java and ottla read otherwise": lambda e: e.readers["java"][DEBITS].reverse(),
    "stored in another order than sent": everywhere(
        lambda debits, credits: debits.__setitem__(slice(None), [record(0, "two-0", -5), record(6, "one-0", -5)])
    ),
    "read before its commit was asked for": journal("teller-3", lambda events: events[2].__setitem__(1, 0.9)),
    "a poll went backwards": journal(
        "teller-3", lambda events: events.insert(3, poll(5.0, DEBITS, 2, (0, "one-0", -5)))
    ),
    "read, and not committed": journal(
        "teller-3", lambda events: events.__setitem__(3, poll(24.0, DEBITS, 8, (2, "one-1", -5), (6, "two-0", -5)))
    ),
    "committed, and left out by a poll": journal(
        "teller-3", lambda events: events.__setitem__(4, poll(24.0, CREDITS, 8, (6, "two-0/0", 5)))
    ),
    "a transaction without an end": journal("teller-2", lambda events: events.pop()),
    "a transaction that took too long": journal("teller-2", lambda events: events[-1].__setitem__(1, 21.0 + LONGEST)),
    "fenced without a reason": fenced(14.0),
    "a transaction hangs": lambda e: e.open.append("debits-0, 8 of 9"),
    "a teller died": lambda e: e.programs.died.__setitem__("teller-3", "exit code 1"),
}


@pytest.mark.parametrize("promise", BREAKS)
def test_a_broken_promise_is_found(promise: str) -> None:
    found = verdict(BREAKS[promise])
    assert any(promise in each for each in found.broken), found.broken


def test_a_fencing_by_a_newer_program_has_a_reason() -> None:
    found = verdict(fenced(16.0))
    assert found.broken == [] and found.fenced == {"teller-1": "by teller-2"}


def test_a_fencing_has_a_reason_when_the_transaction_was_too_old() -> None:
    def change(given: Evidence) -> None:
        given.programs = replace(given.programs, ids=dict(zip(given.programs.ids, "abc", strict=True)))
        fenced(20.0)(given)

    found = verdict(change)
    assert found.broken == [] and "12 s old" in found.fenced["teller-1"]


def test_what_was_asked_to_be_committed_by_a_killed_teller_may_be_there() -> None:
    found = verdict(insert_at(4, "one-2"))
    assert found.found == {"killed, committed": 1}
    assert not [each for each in found.broken if "as ottla reads it" in each], found.broken
