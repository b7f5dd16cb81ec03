"""The load of transforms: idempotent producers, and members of a group that transform their records exactly once."""

from bisect import bisect_right
from collections import Counter
from typing import ClassVar

from tests.chaos.figures import quantiles, quantiles_over_time, rate
from tests.chaos.outputs import Evidence, Verdict, judge
from tests.chaos.run import Chart, Findings, Load, Scene
from tests.chaos.setup import Setup
from tests.chaos.streams import ASSIGNORS, await_caught_up
from tests.chaos.transfers import SETTLING, await_settled, committed
from tests.chaos.witness import TRANSACTIONS_TOPIC, GroupWitness
from tests.chaos.workers import WorkerFaults

INPUT, OUTPUT, GROUP = "input", "output", "transformers"
PRODUCERS = 2
TRANSFORMERS = ("transformer-a", "transformer-b", "transformer-c")
"""Transactional ids of the transformers."""


class Transform(Load):
    """Each input record has exactly one output record."""

    topics: ClassVar = {INPUT: 9, OUTPUT: 5}
    flows = frozenset({"acked", "over"})
    coordinated = TRANSACTIONS_TOPIC, TRANSFORMERS

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._group = GroupWitness(scene.witness, GROUP, INPUT)

    @classmethod
    def setup(cls, seed: int) -> Setup:
        assignors = ASSIGNORS[seed % len(ASSIGNORS)]
        return Setup("producer", "", "", INPUT, "", seed * 1000, group=GROUP, assignors=assignors, output=OUTPUT)

    def faults(self) -> tuple[WorkerFaults, tuple[float, float]]:
        return self.scene.faults("transformer", ("kill", "pause", "visit", "usurp", "slow")), (3.0, 8.0)

    def start(self) -> None:
        for _ in range(PRODUCERS):
            self.scene.workers.start("producer")
        for each in TRANSFORMERS:
            self.scene.workers.start("transformer", each)

    def end(self) -> None:
        self.scene.workers.end_all("producer")

    def settle(self) -> None:
        self._behind = await_caught_up(self._group, self.scene)
        self.scene.workers.end_all("transformer")
        self._open = await_settled(self.scene, SETTLING)

    def gather(self) -> None:
        witness = self.scene.witness
        self._evidence = Evidence(
            self.scene.workers.programs(),
            witness.log(INPUT),
            {name: read[OUTPUT] for name, read in committed(witness.bootstrap, [OUTPUT])},
            self._group.commits(),
            self._behind,
            self._open,
        )

    def judge(self, load_end: float, end: float) -> Findings:
        verdict = judge(self._evidence, self.setup(self.scene.seed).delivery_timeout + 5.0)
        begin = self.scene.begin
        ended = [each for each in verdict.transactions if each.outcome == "committed"]
        acked = sorted(each.time + each.latency - begin for each in verdict.sends.sends if each.offset >= 0)
        passed = sorted(each.over - begin for each in ended for _ in range(each.records))
        ticks = [tick / 2 for tick in range(int(2 * (end - begin)) + 1)]
        return Findings(
            verdict.broken,
            self._rows(verdict, load_end - begin),
            [
                Chart(
                    "Records a second",
                    {"acknowledged": rate(acked, end - begin), "passed on": rate(passed, end - begin)},
                    "/s",
                ),
                Chart(
                    "Records acknowledged and not yet passed on",
                    {"waiting": [(at, max(bisect_right(acked, at) - bisect_right(passed, at), 0)) for at in ticks]},
                    "records",
                ),
                Chart(
                    "Time that a commit takes, by the second of its end",
                    quantiles_over_time((each.over - begin, each.over - each.commits) for each in ended),
                    "ms",
                    log=True,
                ),
            ],
        )

    def _rows(self, verdict: Verdict, seconds: float) -> list[tuple[str, str]]:
        outcomes = Counter(each.outcome or "without an end" for each in verdict.transactions)
        ended = [each for each in verdict.transactions if each.outcome == "committed"]
        stored = sum(map(len, self._evidence.input.values()))
        clients = {name: len(read) for name, read in self._evidence.readers.items()}
        fenced = "; ".join(f"{name}, {reason}" for name, reason in verdict.fenced.items())
        return [
            ("input", f"{stored} records ({stored / max(seconds, 1.0):.0f}/s)"),
            ("output", ", ".join(f"{count} records as {name} reads them" for name, count in clients.items())),
            ("transactions", ", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common())),
            ("records in each", f"{sum(each.records for each in ended) / max(len(ended), 1):.1f} on average"),
            ("latency of commit", quantiles(each.over - each.commits for each in ended)),
            ("of a transaction", quantiles(each.over - each.begins for each in ended)),
            ("commits of offsets", str(sum(map(len, self._evidence.commits.values())))),
            ("fenced", fenced or "none"),
        ]
