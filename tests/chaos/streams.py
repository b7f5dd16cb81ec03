"""The load of streams: idempotent producers, and consumers of one group that commit their positions."""

import contextlib
import time
from bisect import bisect_right
from collections import defaultdict
from typing import ClassVar

from confluent_kafka import KafkaException

from tests.chaos.figures import quantiles, quantiles_over_time, rate
from tests.chaos.injections import PAUSES
from tests.chaos.ledger import Bounds, Evidence, Silence, Verdict, judge
from tests.chaos.run import Chart, Findings, Load, Scene, Series
from tests.chaos.setup import Role, Setup
from tests.chaos.witness import GroupWitness, Watch
from tests.chaos.workers import WorkerFaults
from tests.patience import HUNG

TOPIC, GROUP = "chaos", "chaos-group"
CREW: dict[Role, int] = {"producer": 2, "consumer": 3}
CATCH_UP = HUNG
"""Seconds for the group to read and commit the rest after the last injection."""
ASSIGNORS = (("range",), ("cooperative-sticky",))


class Streams(Load):
    """The records of producers are in the log once and in order, and a group reads them."""

    topics: ClassVar = {TOPIC: 9}
    flows = frozenset({"acked", "batch"})

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._group = GroupWitness(scene.witness, GROUP, TOPIC)
        self._watch = Watch(self._group)
        self._setup = self.setup(scene.seed)

    @classmethod
    def setup(cls, seed: int) -> Setup:
        assignors = ASSIGNORS[seed % len(ASSIGNORS)]
        return Setup("producer", "", "", TOPIC, "", seed * 1000, group=GROUP, assignors=assignors)

    def faults(self) -> tuple[WorkerFaults, tuple[float, float]]:
        return self.scene.faults("consumer", ("kill", "slow")), (8.0, 16.0)

    def start(self) -> None:
        for role, count in CREW.items():
            for _ in range(count):
                self.scene.workers.start(role)

    def watching(self) -> Watch:
        return self._watch

    def end(self) -> None:
        self.scene.workers.end_all("producer")

    def settle(self) -> None:
        await_caught_up(self._group, self.scene)
        self.scene.workers.end_all("consumer")

    def gather(self) -> None:
        workers, witness = self.scene.workers, self.scene.witness
        commits = self._group.commits()
        self._evidence = Evidence(
            workers.journals(), workers.killed, workers.died, witness.log(TOPIC), commits, self._watch.seen
        )

    def judge(self, load_end: float, end: float) -> Findings:
        setup = self._setup
        # The worst case: a member dies just before its rebalance ends, while its coordinator is stopped.
        silence = setup.session_timeout + 2 * setup.max_poll_interval + PAUSES[1] + 20.0
        bounds = Bounds(setup.delivery_timeout + 5.0, silence, handler=setup.max_poll_interval)
        verdict = judge(self._evidence, bounds)
        begin = self.scene.begin
        return Findings(
            verdict.broken,
            self._rows(verdict, bounds, load_end - begin),
            [
                Chart("Records a second", _rates(verdict, begin, end), "/s"),
                Chart(
                    "Time from send to receipt, by the second of the receipt",
                    quantiles_over_time(
                        (s.time + s.latency - begin, s.latency) for s in verdict.sends if s.offset >= 0
                    ),
                    "ms",
                    log=True,
                ),
                Chart(
                    "Records acknowledged and not yet read, or not yet committed",
                    _lags(verdict, self._evidence, begin, end),
                    "records",
                ),
            ],
        )

    def _rows(self, verdict: Verdict, bounds: Bounds, seconds: float) -> list[tuple[str, str]]:
        acked = [each for each in verdict.sends if each.offset >= 0]
        read = sum(each.next - each.first for each in verdict.reads)
        again = sum(verdict.repeats.values())
        reasons = ", ".join(f"{count} after {why}" for why, count in sorted(verdict.repeats.items())) or "none"
        members = len({each.who for each in verdict.assignments})
        silences = sorted(verdict.silences.values(), key=lambda each: -each.seconds)
        return [
            ("assignor", " ".join(self._setup.assignors)),
            ("sent", f"{len(verdict.sends)}, acknowledged {len(acked)} ({len(acked) / max(seconds, 1.0):.0f}/s)"),
            ("not acknowledged", str(len(verdict.sends) - len(acked))),
            ("in the log", str(sum(map(len, self._evidence.log.values())))),
            ("latency of send", quantiles(each.latency for each in acked if each.how == "send")),
            ("latency of all", quantiles(each.latency for each in acked)),
            ("read by the group", f"{read}, {again} of them again ({reasons})"),
            ("commits", f"{sum(map(len, self._evidence.commits.values()))}; {verdict.stale_answers} stale answers"),
            ("partitions given", f"{len(verdict.assignments)} times, by {members} members"),
            (
                "longest silences",
                "; ".join(map(self._described, silences[:5])) + f"; allowed {bounds.silence:.0f} s",
            ),
        ]

    def _described(self, silence: Silence) -> str:
        """A silence, and the injections during it."""
        done = self.scene.log.during(silence.since, silence.time)
        during = f" during {' and '.join(done)}" if done else ""
        return f"{silence.seconds:.1f} s until {silence.time - self.scene.begin:.0f} s by {silence.who}{during}"


def await_caught_up(group: GroupWitness, scene: Scene) -> dict[int, int]:
    """Wait until the group has committed everything; partition -> number of records that are still uncommitted."""
    until = time.monotonic() + CATCH_UP
    behind: dict[int, int] = {}
    while time.monotonic() < until:
        scene.workers.look()
        with contextlib.suppress(KafkaException):
            behind = group.behind()
            if not behind:
                break
        time.sleep(0.5)
    else:
        scene.say(f"the group did not catch up within {CATCH_UP:g} s: {behind}")
    return behind


def _rates(verdict: Verdict, begin: float, end: float) -> dict[str, Series]:
    read: dict[int, float] = defaultdict(float)
    for each in verdict.reads:
        read[int(each.time - begin)] += each.next - each.first
    acked = (each.time + each.latency - begin for each in verdict.sends if each.offset >= 0)
    return {
        "acknowledged": rate(acked, end - begin),
        "read": [(second, read[second]) for second in range(int(end - begin) + 1)],
    }


def _lags(verdict: Verdict, evidence: Evidence, begin: float, end: float) -> dict[str, Series]:
    """The sum of all partitions' lags, each half second."""
    acked = sorted(each.time + each.latency - begin for each in verdict.sends if each.offset >= 0)
    read = _first_reads(verdict, begin)
    times = [tick / 2 for tick in range(int((end - begin) * 2) + 1)]
    unread = [(at, float(max(bisect_right(acked, at) - bisect_right(read, at), 0))) for at in times]
    uncommitted = [
        (at - begin, float(max(bisect_right(acked, at - begin) - sum(answer.values()), 0)))
        for at, answer in evidence.answers
    ]
    return {"not read": unread, "not committed": uncommitted}


def _first_reads(verdict: Verdict, begin: float) -> list[float]:
    """The times at which records were first read, sorted."""
    at: dict[int, int] = defaultdict(int)
    times: list[float] = []
    for each in verdict.reads:
        times += [each.time - begin] * max(each.next - max(each.first, at[each.partition]), 0)
        at[each.partition] = max(at[each.partition], each.next)
    return times
