"""The judge of transforms finds each kind of broken promise."""

from collections.abc import Callable

import pytest

from tests.chaos.fences import Programs
from tests.chaos.journal import Event
from tests.chaos.outputs import Evidence, judge
from tests.interop.lines import Received


def output(offset: int, key: str, number: int) -> Received:
    return Received(0, offset, 0, key.encode(), b"%d ..." % number)


def evidence() -> Evidence:
    """Three records of one key, transformed by two transactions; the first one had two attempts."""
    sends: list[Event] = []
    for number in range(3):
        sends += [["sent", 1.0, "p-0", number, "send"], ["acked", 1.5, "p-0", number, 0, number, 0.5]]
    passes: list[Event] = []
    for name, outcome, next_ in (("t-0", "aborted", 2), ("t-1", "committed", 2), ("t-2", "committed", 3)):
        passes += [["begins", 2.0, name, [[0, next_, 2]]], ["open", 2.0, name], ["commits", 3.0, name]]
        passes.append(["over", 4.0, name, outcome, ""])
    programs = Programs(
        {"producer-1": sends, "transformer-1": passes},
        ids={"producer-1": "", "transformer-1": "a"},
        timeouts={"producer-1": 60.0, "transformer-1": 60.0},
        started={"producer-1": 0.0, "transformer-1": 0.0},
        killed=[],
        died={},
    )
    read = {name: [output(2 * number, "p-0", number) for number in range(3)] for name in ("ottla", "java")}
    stored = {0: [(number, b"p-0", b"%d ..." % number) for number in range(3)]}
    return Evidence(programs, stored, read, {0: [2, 3]}, {}, [])


def everywhere(change: Callable[[list[Received]], object]) -> Callable[[Evidence], object]:
    return lambda given: [change(read) for read in given.readers.values()]


def test_a_run_in_which_all_is_well_breaks_nothing() -> None:
    found = judge(evidence(), delivery=90.0)
    assert found.broken == []
    assert [(each.outcome, each.records) for each in found.transactions] == [
        ("aborted", 2),
        ("committed", 2),
        ("committed", 2),
    ]


BREAKS: dict[str, Callable[[Evidence], object]] = {
    "left out, as ottla reads it": everywhere(lambda read: read.pop()),
    "too often, or nobody's, as java reads it": everywhere(lambda read: read.append(output(9, "p-0", 2))),
    "nobody's": everywhere(lambda read: read.append(output(9, "p-0", 3))),
    "java and ottla read otherwise": lambda e: e.readers["java"].reverse(),
    "the outputs of a key are out of order": everywhere(
        lambda read: read.__setitem__(slice(None), [output(0, "p-0", 1), output(2, "p-0", 0), output(4, "p-0", 2)])
    ),
    "a commit went backwards": lambda e: e.commits[0].append(2),
    "never committed by the group": lambda e: e.behind.__setitem__(0, 1),
    "a transaction hangs": lambda e: e.open.append("output-0, 5 of 6"),
    "acknowledged and lost": lambda e: (e.input[0].pop(), [read.pop() for read in e.readers.values()]),
    "fenced without a reason": lambda e: e.programs.journals["transformer-1"].append(["fenced", 9.0, "a newer one"]),
    "a client died": lambda e: e.programs.died.__setitem__("transformer-1", "exit code 1"),
}


@pytest.mark.parametrize("promise", BREAKS)
def test_a_broken_promise_is_found(promise: str) -> None:
    given = evidence()
    BREAKS[promise](given)
    found = judge(given, delivery=90.0)
    assert any(promise in each for each in found.broken), found.broken
