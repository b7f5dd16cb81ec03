"""What is done to the cluster, chosen by a seed; what is done to programs is in `tests.chaos.workers`.

Rules:
- Faults of nodes come one after the other, each after the replicas are in sync again: the topics have three of them and
  need two. Faults of programs come independently of them.
- In each round every kind of a track comes once, in an order of the seed, but the longest (a rolling restart) last. No
  fault begins after the time is over, except in the first round: on a busy machine a node takes half a minute to start,
  and each kind has to come once.
"""

import contextlib
import itertools
import random
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tests.chaos.witness import MoveFailed, Witness
from tests.kafka import ApacheKafka

PAUSES = (5.0, 15.0)
"""Seconds for which a node is stopped: shorter and longer than the 4 s after which it is missed."""
DOWN = (0.5, 8.0)
"""Seconds between the death of a node and its next start."""
BETWEEN = (2.0, 6.0)
REPLACED = (0.5, 4.0)
"""Seconds between the death of a program and the start of the next."""


@dataclass
class Injection:
    """One fault; times of the monotonic clock."""

    kind: str
    target: str
    start: float
    end: float = 0.0
    more: str = ""


class Log:
    """All injections of a run, in order of their beginnings."""

    def __init__(self, begin: float, say: Callable[[str], None]) -> None:
        self.all: list[Injection] = []
        self._begin, self._say = begin, say

    @contextlib.contextmanager
    def note(self, kind: str, target: str) -> Iterator[Injection]:
        injection = Injection(kind, target, time.monotonic())
        self.all.append(injection)
        try:
            yield injection
        finally:
            injection.end = time.monotonic()
            at, lasted = injection.start - self._begin, injection.end - injection.start
            self._say(f"{at:6.1f} s  {kind:<18} {injection.target:<14} {lasted:6.1f} s  {injection.more}")

    def during(self, since: float, until: float) -> list[str]:
        """The kinds of what was done in a time."""
        return list(dict.fromkeys(each.kind for each in self.all if each.start < until and each.end > since))


class Track(threading.Thread):
    """Injects faults of its kinds, one after the other, each once and then until a time; an error is kept for `end`."""

    def __init__(
        self, kinds: Mapping[str, Callable[[], None]], rng: random.Random, between: tuple[float, float], until: float
    ) -> None:
        super().__init__(daemon=True)
        self._kinds, self._rng, self._between, self._until = kinds, rng, between, until
        self._failed: Exception | None = None
        self._stop_now = threading.Event()

    def run(self) -> None:
        try:
            for round_ in itertools.count():
                *kinds, last = self._kinds.values()
                self._rng.shuffle(kinds)
                for inject in (*kinds, last):
                    if self._stop_now.wait(self._rng.uniform(*self._between)):
                        return
                    if round_ and time.monotonic() > self._until:
                        return
                    inject()
        except Exception as error:  # of the harness, whatever it is: raised again by `end`
            self._failed = error

    def end(self) -> None:
        """Wait until the last fault is mended; raises what went wrong with the injections."""
        self.join()
        if self._failed is not None:
            raise self._failed

    def interrupt(self) -> None:
        """Begin no other fault."""
        self._stop_now.set()


class Nodes:
    """Faults of the cluster.

    Args:
        coordinated: if one of them is to be the kill of the node that coordinates any of these: names, and the topic in
            which their coordinators keep what they know.
    """

    def __init__(
        self,
        kafka: ApacheKafka,
        witness: Witness,
        log: Log,
        rng: random.Random,
        coordinated: tuple[str, Sequence[str]] | None = None,
    ) -> None:
        self._kafka, self._witness, self._log, self._rng = kafka, witness, log, rng
        self._coordinated = coordinated
        self.kinds = {
            "kill": self.kill,
            "pause": self.pause,
            "move leaders": self.move_leaders,
            **({"kill coordinator": self.kill_coordinator} if coordinated else {}),
            "rolling restart": self.rolling_restart,
        }

    def kill(self) -> None:
        self._kill("kill", self._any())

    def kill_coordinator(self) -> None:
        assert self._coordinated is not None
        topic, names = self._coordinated
        name = self._rng.choice(names)
        self._kill("kill coordinator", self._witness.coordinator(topic, name), f"the coordinator of {name}, ")

    def _kill(self, kind: str, node: int, why: str = "") -> None:
        with self._log.note(kind, f"node {node}") as injection:
            self._kafka.kill(node)
            down = self._rng.uniform(*DOWN)
            time.sleep(down)
            self._kafka.revive(node)
            injection.more = f"{why}started again after {down:.1f} s"
        self._witness.await_in_sync()

    def pause(self) -> None:
        node = self._any()
        with self._log.note("pause", f"node {node}"):
            self._kafka.kill(node, signal.SIGSTOP)
            time.sleep(self._rng.uniform(*PAUSES))
            self._kafka.kill(node, signal.SIGCONT)
        self._witness.await_in_sync()

    def move_leaders(self) -> None:
        """Of about half of the partitions, those of coordinators perhaps among them."""
        seed = self._rng.randrange(2**32)
        with self._log.note("move leaders", "cluster") as injection:
            try:
                moved = self._witness.move_leaders(lambda place: random.Random(f"{seed} {place}").random() < 0.5)
                injection.more = f"{moved} partitions have another leader"
            except MoveFailed as error:
                injection.more = f"the tool failed: {error}"
        self._witness.await_in_sync()

    def rolling_restart(self) -> None:
        order = list(range(len(self._kafka.nodes)))
        self._rng.shuffle(order)
        for node in order:
            with self._log.note("rolling restart", f"node {node}") as injection:
                start = time.monotonic()
                try:
                    self._kafka.kill(node, signal.SIGTERM)
                except subprocess.TimeoutExpired:
                    self._kafka.kill(node)
                injection.more = f"ended after {time.monotonic() - start:.1f} s"
                self._kafka.revive(node)
            self._witness.await_in_sync()

    def _any(self) -> int:
        return self._rng.randrange(len(self._kafka.nodes))
