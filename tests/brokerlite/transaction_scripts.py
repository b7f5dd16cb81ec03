"""Sequences of steps that random walks do not reach: exhausted epochs, and values that no client sends."""

from typing import Any

from tests.brokerlite.transacting import MEMBER, STRANGER, Step
from tests.brokerlite.transaction_walks import GROUP, LAST_LOOK, LONG_MS

LAST = 32766
"""The last epoch that a client can get; after it, the producer id changes."""


def _used_up(*steps: Step) -> list[Step]:
    """Steps of a producer with the last epoch."""
    return [["init", 4, "x0", LONG_MS, -1, -1], ["exhaust", "x0", 0], *steps, ["describe", ["x0"]], *LAST_LOOK]


def _init(producer_id: int, epoch: int) -> Step:
    return ["init", 4, "x0", LONG_MS, producer_id, epoch]


def _produce(version: int, producer_id: int, epoch: int, sequence: int) -> Step:
    return ["produce", version, "x0", producer_id, epoch, [[0, sequence, 1, 1]]]


def _end(version: int, producer_id: int, epoch: int, commit: bool) -> Step:
    return ["end", version, "x0", producer_id, epoch, commit]


ANYBODY = ["", -1, None]
"""No member."""


def _commit(
    name: str, producer_id: int, epoch: int, member: list[Any], *offsets: list[int], group: str = GROUP
) -> Step:
    return ["commit", 5, name, producer_id, epoch, group, member, list(offsets)]


def _marker(
    producer_id: int, epoch: int, *partitions: int, coordinator_epoch: int = 0, version: int = 1, commit: bool = True
) -> Step:
    """``version``: of transactions."""
    return ["marker", 2, producer_id, epoch, commit, coordinator_epoch, version, list(partitions)]


def _begun(*steps: Step) -> list[Step]:
    """Steps after a producer has begun with id 0 and epoch 0."""
    return [_init(-1, -1), *steps, ["describe", ["x0"]], *LAST_LOOK]


SCRIPTS: dict[str, list[Step]] = {
    "epochs are used up by a commit of version 2": _used_up(
        _produce(12, 0, LAST, 0),
        _end(5, 0, LAST, True),
        _end(5, 0, LAST, True),
        _end(5, 0, LAST, False),
        ["describe", ["x0"]],
        _produce(12, 0, LAST, 1),
        _produce(12, 1, 0, 0),
        _end(5, 0, LAST, True),
        _end(5, 1, 0, False),
        _end(5, 0, LAST, True),
    ),
    "epochs are used up by an abort of nothing": _used_up(
        _end(5, 0, LAST, False),
        _end(5, 0, LAST, False),
        _end(5, 0, LAST, True),
        _init(0, LAST),
        ["describe", ["x0"]],
        ["add", 3, "x0", 1, 0, [0]],
        _init(0, LAST),
        _init(1, 0),
        _init(1, 1),
    ),
    "epochs are used up by version 1, then by version 2": _used_up(
        ["add", 1, "x0", 0, LAST, [0]],
        _produce(9, 0, LAST, 0),
        _end(1, 0, LAST, True),
        _end(1, 0, LAST, True),
        ["add", 1, "x0", 0, LAST, [0]],
        _end(1, 0, LAST, False),
        ["describe", ["x0"]],
        _end(5, 0, LAST, False),
        _end(5, 0, LAST, False),
        _init(0, LAST),
        _init(-1, -1),
    ),
    "epochs are used up by a new producer": _used_up(_init(-1, -1), _init(0, LAST)),
    "epochs are used up by the same producer": _used_up(
        _init(0, LAST), _init(0, LAST), ["describe", ["x0"]], _init(1, 0), _init(0, LAST)
    ),
    "epochs are used up when an open transaction is fenced": _used_up(
        ["add", 1, "x0", 0, LAST, [0]],
        _produce(9, 0, LAST, 0),
        _init(-1, -1),
        ["describe", ["x0"]],
        _init(0, LAST),
        _end(5, 0, LAST, False),
        _end(2, 0, LAST, False),
        _init(-1, -1),
    ),
    "ids and epochs that nobody gives out": _begun(
        _init(-1, 0),
        _init(0, -1),
        ["init", 4, None, 0, -1, -1],
        ["init", 4, None, -5, 0, 0],
        ["init", 4, "", 0, -1, -1],
        ["offsets", 3, "x0", -1, -1, GROUP],
        _end(5, -1, -1, False),
        _commit("x0", -1, 0, ANYBODY, [0, 1]),
        _commit("x0", 0, -1, ANYBODY, [0, 1]),
        _produce(12, -1, -1, 0),
        _produce(12, -1, -1, -1),
        ["produce", 12, None, 0, 0, [[0, 0, 1, 0]]],
        _produce(12, 0, -1, 0),
        ["produce", 12, None, 0, -1, [[0, 0, 1, 0]]],
    ),
    "an empty transactional id": _begun(
        ["add", 0, "", 0, 0, [0]],
        ["add", 3, "", 0, 0, [0, 9]],
        ["add", 4, "", 0, 0, [0]],
        ["add", 4, "", 0, 0, [0], True],
        ["offsets", 3, "", 0, 0, GROUP],
        ["end", 3, "", 0, 0, True],
        ["end", 5, "", 0, 0, True],
        _commit("", 0, 0, ANYBODY, [0, 1]),
        *(["produce", version, "", 0, 0, [[0, 0, 1, 1]]] for version in (9, 11, 12)),
        ["produce", 12, "", 0, 0, [[0, 0, 1, 0]]],
    ),
    "no partitions, and one twice": _begun(
        ["add", 4, "x0", 0, 0, [], True],
        ["describe", ["x0"]],
        ["add", 3, "x0", 0, 0, []],
        ["describe", ["x0"]],
        ["add", 3, "x0", 0, 0, [0, 0]],
        ["describe", ["x0"]],
        _end(3, 0, 0, True),
        _commit("x0", 0, 0, ANYBODY),
        _commit("x0", 0, 0, ANYBODY, [9, 1]),
        ["describe", []],
        ["producers", []],
    ),
    "offsets of members and of anybody": _begun(
        _commit("x0", 0, 0, ANYBODY, [0, -1]),
        ["committed", 8, GROUP, True],
        *(
            _commit("x0", 0, 0, member, [0, 4])
            for member in (["", 0, None], ["m", -1, None], ["m", -1, "i"], ["", -1, "i"], ["", -2, None])
        ),
        _end(5, 0, 0, True),
        ["committed", 8, GROUP, True],
        ["join", GROUP],
        *(
            _commit("x0", 0, 1, member, [1, 4])
            for member in (
                ANYBODY,
                ["", 1, None],
                [MEMBER, 1, None],
                [MEMBER, -1, None],
                [MEMBER, 2, None],
                [MEMBER, 1, "i"],
            )
        ),
        _commit("x0", 0, 1, [MEMBER, 1, None], [0, 1], group="g2"),
        _commit("x0", 0, 1, ANYBODY, [0, 7], group="g3"),
        ["committed", 8, "g3", True],
        _end(5, 0, 1, False),
        ["committed", 8, "g2", False],
        ["committed", 8, "g3", False],
    ),
    "offsets of two transactions, and of none": _begun(
        ["init", 4, "x1", LONG_MS, -1, -1],
        _commit("x0", 0, 0, ANYBODY, [0, 10], [1, 10]),
        _commit("x1", 1, 0, ANYBODY, [0, 11]),
        ["store", GROUP, [[1, 12]]],
        ["committed", 8, GROUP, True],
        ["committed", 8, GROUP, False],
        ["end", 5, "x1", 1, 0, True],
        ["committed", 8, GROUP, True],
        _end(5, 0, 0, True),
        ["committed", 8, GROUP, True],
        _commit("x0", 0, 1, ANYBODY, [0, 13]),
        _commit("unknown", 0, 1, ANYBODY, [0, 14]),
        _commit("x0", 0, 0, ANYBODY, [0, 15]),
        _end(5, 0, 1, True),
        _commit("unknown", 0, 1, ANYBODY, [0, 16]),
        _commit("unknown", 0, 2, ANYBODY, [0, 16]),
        ["committed", 8, GROUP, True],
    ),
    "first batches that are refused": _begun(
        *(
            step
            for version in (9, 11)
            for step in (
                _produce(version, 0, 0, 2),
                _produce(version, 0, 0, 0),
                _produce(version, 0, 0, 1),
                ["add", 3, "x0", 0, 0, [0]],
                _produce(version, 0, 0, 1),
                _produce(version, 0, 0, 2),
                _produce(version, 0, 0, 0),
                _produce(version, 0, 0, 1),
                _end(4, 0, 0, True),
                _produce(version, 0, 0, 1),
            )
        ),
        _produce(12, 0, 0, 3),
        _produce(12, 0, 0, 2),
        _end(5, 0, 0, True),
        _produce(12, 0, 1, 2),
        _produce(12, 0, 1, 0),
        ["init", 4, "x1", LONG_MS, -1, -1],
        ["produce", 12, "x1", 1, 0, [[0, 4, 1, 1]]],
        ["produce", 12, "x1", 1, 0, [[0, 0, 1, 1]]],
    ),
    "markers of an administrator": _begun(
        _marker(-1, 0, 0),
        _marker(0, -1, 0),
        _marker(0, 0, 1, coordinator_epoch=-1),
        _marker(0, 0, 1, coordinator_epoch=-1, version=2),
        _marker(0, 1, 0, 9),
        _marker(STRANGER, 32767, 1, version=2, commit=False),
        _marker(STRANGER, 32767, 1, version=2),
        _marker(STRANGER, 5, 1),
        _marker(STRANGER, 32767, 1, coordinator_epoch=7),
        _marker(STRANGER, 32767, 1, coordinator_epoch=3),
    ),
    "states that there are, and others": _begun(
        *(
            ["transactions", names, []]
            for names in (["Dead"], ["PrepareEpochFence"], ["empty"], ["Empty", "X", "X"], ["PrepareCommit"])
        ),
        ["transactions", [], [0, STRANGER]],
        ["describe", ["unknown"]],
    ),
}
