"""Sequences of steps about a few transactional ids with two producers each, from a seed and the responses so far.

Most steps are requests that a client would send. Some are late, repeated, too early, or those of another producer.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

from tests.brokerlite.transacting import MEMBER, PARTITIONS, STRANGER, Step

SHORT_MS, LONG_MS = 1500, 60_000
GROUP = "g"
GROUPS = -1
LAST_LOOK: list[Step] = [
    ["transactions", [], []],
    ["producers", list(range(PARTITIONS))],
    ["ends", 7, 0, -1],
    ["ends", 7, 1, -1],
    *(["fetch", 12, isolation, partition, 0] for partition in range(PARTITIONS) for isolation in (0, 1)),
    ["committed", 8, GROUP, True],
    ["committed", 8, GROUP, False],
]


@dataclass
class Instance:
    """A producer with a transactional id."""

    name: str
    producer_id: int = -1
    epoch: int = -1
    sequences: dict[int, int] = field(default_factory=dict)
    """Partition -> next sequence."""
    joined: set[int] = field(default_factory=set)
    """The contents of its transaction: partitions, and `GROUPS` if the group's offsets belong to it."""

    def adopt(self, producer_id: int, epoch: int) -> None:
        if (producer_id, epoch) != (self.producer_id, self.epoch):
            self.sequences = {}
        self.joined = set()
        self.producer_id, self.epoch = producer_id, epoch


class Walk:
    """A sequence of steps.

    Args:
        versions: transaction version of the clients; 0: the seed decides, and may mix both.
        release: the version of Kafka.
    """

    def __init__(self, seed: int, versions: int = 0, release: str = "4.3") -> None:
        self.rng = random.Random(seed)
        self._markers = (1, 2) if release >= "4.3" else (1,)
        self._version = versions or self.rng.choice((1, 1, 2, 2, 0))
        self._care = self.rng.choice((0.6, 0.9, 0.97))
        """The share of steps that are correct."""
        self._timeout_ms = SHORT_MS if self.rng.random() < 0.08 else LONG_MS
        ids = self.rng.choice((1, 1, 2, 3)) if self._timeout_ms == LONG_MS else 1
        self.names = [f"x{i}" for i in range(ids)]
        self.instances = [Instance(name) for name in self.names for _ in range(2)]
        self._steps_left = self.rng.randint(10, 28)
        self._last: Step | None = None

    def steps(self) -> Iterator[tuple[Step, Instance | None]]:
        """Each step, and its producer; the caller passes the response to `learn`."""
        yield from self._own_steps()
        yield ["describe", self.names], None
        for step in LAST_LOOK:
            yield step, None

    def _own_steps(self) -> Iterator[tuple[Step, Instance | None]]:
        for _ in range(self._steps_left):
            yield self._next()

    def _next(self) -> tuple[Step, Instance | None]:
        rng = self.rng
        one = rng.choice(self.instances) if rng.random() > self._care else self.instances[0]
        if one.producer_id < 0 and rng.random() < 0.9:
            return self._init(one), one
        if self._last is not None and rng.random() < 0.08:
            return self._last, one
        kinds = [
            "init",
            "end",
            "end",
            "end",
            "produce",
            "produce",
            "produce",
            "look",
            "commit",
            "marker",
            "join",
            "store",
        ]
        weights = [1.0, 1.5, 1.5, 1.5, 3, 3, 3, 2, 2, 0.4, 0.15, 0.5]
        if self._v1():
            kinds += ["add", "offsets", "verify"]
            weights += [2, 1, 0.6]
        if self._timeout_ms == SHORT_MS:
            kinds.append("time")
            weights.append(2)
        kind = self._kind(kinds, weights)
        step: Step = getattr(self, f"_{kind}")(one)
        if kind not in ("look", "time", "join"):
            self._last = step
        return step, one

    def _kind(self, kinds: list[str], weights: list[float]) -> str:
        return self.rng.choices(kinds, weights)[0]

    def learn(self, step: Step, one: Instance | None, answer: Any) -> None:
        """Update a producer from the response to its step."""
        if one is None:
            return
        match step[0]:
            case "init" if answer[0] == 0 and step[2] == one.name:
                one.adopt(answer[1], answer[2])
            case "end" if answer[0] == 0 and step[2] == one.name:
                one.adopt(*(answer[1:] if answer[1] >= 0 else (one.producer_id, one.epoch)))
            case "add":
                one.joined |= {partition for partition, error in answer[1] if error == 0}
            case "offsets" if answer == 0:
                one.joined.add(GROUPS)
        if step[0] == "produce" and (step[3], step[4]) == (one.producer_id, one.epoch):
            for (partition, sequence, count, _), (_, error, _) in zip(sorted(step[5]), answer, strict=True):
                if error == 0:
                    one.sequences[partition] = max(one.sequences.get(partition, 0), sequence + count)

    # -- correct arguments, or wrong ones

    def _v1(self) -> bool:
        return self._version == 1 or (self._version == 0 and self.rng.random() < 0.5)

    def _right(self) -> bool:
        return self.rng.random() < self._care

    def _who(self, one: Instance) -> list[Any]:
        """Transactional id, producer id and epoch for a request."""
        if self._right():
            return [one.name, one.producer_id, one.epoch]
        rng = self.rng
        other = rng.choice(self.instances)
        return rng.choice(
            (
                [one.name, one.producer_id, max(0, one.epoch - 1)],
                [one.name, one.producer_id, max(0, one.epoch - 1)],
                [one.name, one.producer_id, one.epoch + 1],
                [one.name, STRANGER, one.epoch],
                [one.name, other.producer_id, other.epoch],
                ["unknown", one.producer_id, one.epoch],
                [one.name, one.producer_id, max(0, one.epoch)],
            )
        )

    def _partitions(self) -> list[int]:
        every = list(range(PARTITIONS))
        if self.rng.random() < 0.04:
            return [0, 9]
        return self.rng.choice((every, [0], [0], [1]))

    # -- steps

    def _init(self, one: Instance) -> Step:
        rng = self.rng
        if rng.random() < 0.03:
            return ["init", 4, one.name, rng.choice((0, -1, 900_001)), -1, -1]
        if rng.random() < 0.02:
            return ["init", rng.choice((1, 4)), rng.choice((None, "")), LONG_MS, -1, -1]
        timeout_ms = self._timeout_ms
        if one.producer_id >= 0 and rng.random() < 0.45:
            _, producer_id, epoch = self._who(one)
            return ["init", rng.choice((3, 4, 5)), one.name, timeout_ms, producer_id, epoch]
        if rng.random() < 0.03:
            return ["init", 4, one.name, timeout_ms, one.producer_id, -1]
        return ["init", rng.choice((0, 1, 2, 3, 4, 5)), one.name, timeout_ms, -1, -1]

    def _add(self, one: Instance) -> Step:
        version = 4 if self.rng.random() < 0.06 else self.rng.randint(0, 3)
        return ["add", version, *self._who(one), self._partitions()]

    def _verify(self, one: Instance) -> Step:
        return ["add", self.rng.choice((4, 5)), *self._who(one), self._partitions(), True]

    def _offsets(self, one: Instance) -> Step:
        return ["offsets", self.rng.randint(0, 4), *self._who(one), GROUP]

    def _commit(self, one: Instance) -> Step:
        rng = self.rng
        version = rng.randint(0, 4) if self._v1() else 5
        if version < 5 and GROUPS not in one.joined and self._right():
            return self._offsets(one)
        member = self._member() if version >= 3 else ["", -1, None]
        offsets = [[partition, rng.randrange(100)] for partition in self._partitions()]
        return ["commit", version, *self._who(one), GROUP, member, offsets]

    def _member(self) -> list[Any]:
        """The member that TxnOffsetCommit names: member id, generation, instance id (KIP-447)."""
        if self.rng.random() < 0.3:
            return self.rng.choice(([MEMBER, 1, None], [MEMBER, 2, None], ["stranger", 1, None], ["", 1, None]))
        return ["", -1, None]

    def _produce(self, one: Instance) -> Step:
        rng = self.rng
        name, producer_id, epoch = self._who(one)
        version = rng.choice((3, 9, 10, 11)) if self._v1() else 12
        partitions = self._partitions()
        if version < 12 and not one.joined.issuperset(partitions) and self._right():
            return ["add", rng.randint(0, 3), name, producer_id, epoch, partitions]
        batches = []
        transactional = int(rng.random() < 0.93)
        for partition in partitions:
            sequence, count = one.sequences.get(partition, 0), rng.choice((1, 1, 2, 3))
            if not self._right():
                sequence = rng.choice((max(0, sequence - 1), max(0, sequence - count), sequence + 3, 0))
            batches.append([partition, sequence, count, transactional])
        if (not transactional and rng.random() < 0.7) or rng.random() < 0.01:
            name = None
        return ["produce", version, name, max(0, producer_id), max(0, epoch), batches]

    def _end(self, one: Instance) -> Step:
        version = self.rng.randint(0, 4) if self._v1() else 5
        return ["end", version, *self._who(one), self.rng.random() < 0.6]

    def _marker(self, one: Instance) -> Step:
        """An administrator's WriteTxnMarkers.

        After a marker of a higher epoch, or of a newer coordinator, Kafka refuses the transaction's own marker, and the
        transaction stays open for ever: such markers are left out, as there would be no response to compare.
        """
        rng = self.rng
        _, producer_id, epoch = self._who(one)
        producer_id, epoch, coordinator_epoch = max(0, producer_id), max(0, epoch), 0
        if rng.random() < 0.3:
            producer_id, epoch, coordinator_epoch = STRANGER, rng.randrange(3), rng.randrange(3)
        elif self._version == 2:
            epoch += rng.randrange(2)
        version = rng.choice(self._markers)
        transaction_version = rng.choice((0, 2)) if version == 2 else 0
        commit = rng.random() < 0.5
        return ["marker", version, producer_id, epoch, commit, coordinator_epoch, transaction_version, [0]]

    def _join(self, one: Instance) -> Step:
        return ["join", GROUP]

    def _store(self, one: Instance) -> Step:
        return ["store", GROUP, [[partition, self.rng.randrange(100)] for partition in (0, 1)]]

    def _time(self, one: Instance) -> Step:
        return ["time", self._timeout_ms]

    def _look(self, one: Instance) -> Step:
        rng = self.rng
        looks: list[Step] = [
            ["describe", [one.name]],
            ["transactions", rng.choice(([], ["Ongoing"], ["CompleteCommit", "Empty"], ["Strange"])), []],
            ["transactions", [], [max(0, one.producer_id)]],
            ["producers", [0, 9]],
            ["ends", rng.choice((2, 7)), rng.randrange(2), rng.choice((-1, -1, -1, -2))],
            ["fetch", rng.choice((4, 11, 12)), rng.randrange(2), rng.randrange(PARTITIONS), rng.randrange(3)],
            ["committed", rng.choice((7, 8, 9)), GROUP, rng.random() < 0.6],
        ]
        return rng.choice(looks)


class OffsetsWalk(Walk):
    """A walk about the offsets of a group, whose members come and go."""

    _WEIGHTS: ClassVar[dict[str, float]] = {
        "init": 0.7,
        "end": 1.0,
        "produce": 0.3,
        "look": 0.5,
        "commit": 4.0,
        "join": 1.2,
        "store": 0.8,
        "add": 0.3,
        "offsets": 1.5,
        "leave": 0.3,
        "committed": 1.5,
        "time": 2.0,
    }

    def __init__(self, seed: int, versions: int = 0, release: str = "4.3") -> None:
        super().__init__(seed, versions, release)
        self._generation = 0
        self._instance = self.rng.choice((None, None, "i"))

    def _kind(self, kinds: list[str], weights: list[float]) -> str:
        known = [*dict.fromkeys(kinds), "leave", "committed"]
        own = [each for each in known if each in self._WEIGHTS]
        return self.rng.choices(own, [self._WEIGHTS[each] for each in own])[0]

    def learn(self, step: Step, one: Instance | None, answer: Any) -> None:
        super().learn(step, one, answer)
        if step[0] == "join" and answer[0] == 0:
            self._generation = answer[1]

    def _member(self) -> list[Any]:
        rng, now = self.rng, [MEMBER, self._generation, self._instance]
        if self._right():
            return rng.choice((now, now, now, ["", -1, None]))
        return rng.choice(
            (
                [MEMBER, self._generation - 1, self._instance],
                [MEMBER, self._generation + 1, self._instance],
                [MEMBER, self._generation, "j"],
                [MEMBER, -1, None],
                ["stranger", self._generation, None],
                ["stranger", self._generation, self._instance],
                ["", self._generation, None],
            )
        )

    def _join(self, one: Instance) -> Step:
        return ["join", GROUP] if self._instance is None else ["join", GROUP, self._instance]

    def _leave(self, one: Instance) -> Step:
        return ["leave", GROUP]

    def _committed(self, one: Instance) -> Step:
        return ["committed", self.rng.choice((7, 8, 9)), GROUP, self.rng.random() < 0.6]


class HeldWalk(Walk):
    """A walk in which partition 1 gets its markers late. It joins transactions, but no records are written to it."""

    def __init__(self, seed: int, versions: int = 0, release: str = "4.3") -> None:
        super().__init__(seed, versions, release)
        self._timeout_ms, self._holds = LONG_MS, False

    def steps(self) -> Iterator[tuple[Step, Instance | None]]:
        yield from self._own_steps()
        looks: list[Step] = [
            ["describe", self.names],
            ["transactions", [], []],
            ["fetch", 12, 1, 0, 0],
        ]
        for step in looks:
            yield step, None

    def _own_steps(self) -> Iterator[tuple[Step, Instance | None]]:
        for step in super()._own_steps():
            if self.rng.random() < (0.15 if self._holds else 0.3):
                self._holds = not self._holds
                yield ["hold" if self._holds else "let_go"], None
            yield step
        if self._holds:
            yield ["let_go"], None

    def _kind(self, kinds: list[str], weights: list[float]) -> str:
        own = [each for each in dict.fromkeys(kinds) if each not in ("marker", "time", "look")]
        return self.rng.choices([*own, "add", "describe"], [*([1.0] * len(own)), 2.0, 1.0])[0]

    def _next(self) -> tuple[Step, Instance | None]:
        step, one = super()._next()
        match step:
            case ["produce", *_, batches]:
                step = [*step[:-1], [each for each in batches if each[0] != 1] or [[0, 0, 1, 1]]]
            case ["add", version, name, producer_id, epoch, partitions, *verify]:
                step = ["add", version, name, producer_id, epoch, sorted({*partitions, 1}), *verify]
        return step, one

    def _describe(self, one: Instance) -> Step:
        return ["describe", [one.name]]
