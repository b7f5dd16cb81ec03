"""Faults of the cluster, chosen by a seed; `tests.chaos.workers` injects faults of programs.

Rules:
- Only one node fails at a time, and the next fails only once all replicas are in sync: the topics have three replicas,
  and need two. Faults of programs are independent of this.
- A track injects each of its kinds once in each round, in an order of the seed; the longest kind (a rolling restart)
  comes last. After the end of the run's time no fault begins, except in the first round: on a busy machine a node takes
  half a minute to start, and each kind has to come once.
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
"""Seconds for which a node is stopped: below and above the 4 s after which the controller fences it."""
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
        """The kinds of the injections in a period."""
        return list(dict.fromkeys(each.kind for each in self.all if each.start < until and each.end > since))


class Track(threading.Thread):
    """Injects faults of its kinds, one after the other: each kind once, then until a time. `end` raises its error."""

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
        except Exception as error:  # any error of the harness; `end` raises it again
            self._failed = error

    def end(self) -> None:
        """Wait until the last fault is repaired. Raises the error of an injection, if there was one."""
        self.join()
        if self._failed is not None:
            raise self._failed

    def interrupt(self) -> None:
        """Begin no more faults."""
        self._stop_now.set()


class Nodes:
    """Faults of the cluster.

    Args:
        coordinated: names of groups or transactional ids, and the internal topic of their coordinators. If given, one
            kind of fault kills the node that coordinates one of these.
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
        """Move the leadership of about half of the partitions, internal topics included."""
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
