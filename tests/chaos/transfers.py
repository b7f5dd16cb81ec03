"""The load of transfers: tellers, whose transfers are transactions of sends and polls."""

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import ClassVar

from confluent_kafka import KafkaException

from tests.chaos.figures import quantiles, quantiles_over_time, rate
from tests.chaos.history import Evidence, Verdict, judge
from tests.chaos.run import Chart, Findings, Load, Scene
from tests.chaos.setup import Setup
from tests.chaos.witness import TRANSACTIONS_TOPIC
from tests.chaos.workers import WorkerFaults
from tests.interop.lines import Received
from tests.interop.peers import AIOKAFKA, JAVA, LIBRDKAFKA, OTTLA
from tests.interop.transfers import CREDITS, DEBITS

PARTITIONS = 4
TELLERS = {"teller-a": 10.0, "teller-b": 60.0, "teller-c": 60.0}
"""Transactional id -> transaction timeout in seconds; some pauses are longer than the shortest."""
SETTLING = 60.0 + 15.0
"""Seconds until the broker has ended abandoned transactions."""
READING = 300.0
"""Seconds for a client to read everything."""
COMMITTED = {"isolation.level": "read_committed"}


class Transfers(Load):
    """Each transfer is whole or absent, and clients read no other records."""

    topics: ClassVar = {DEBITS: PARTITIONS, CREDITS: PARTITIONS}
    flows = frozenset({"over"})
    coordinated = TRANSACTIONS_TOPIC, tuple(TELLERS)

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene)
        self._open: list[str] = []

    @classmethod
    def setup(cls, seed: int) -> Setup:
        return Setup("teller", "", "", DEBITS, "", seed * 1000, output=CREDITS, partitions=PARTITIONS, rate=15.0)

    def faults(self) -> tuple[WorkerFaults, tuple[float, float]]:
        return self.scene.faults("teller", ("kill", "pause", "usurp")), (3.0, 8.0)

    def start(self) -> None:
        for transactional_id, timeout in TELLERS.items():
            self.scene.workers.start("teller", transactional_id, timeout)

    def end(self) -> None:
        self.scene.workers.end_all("teller")

    def settle(self) -> None:
        self._open = await_settled(self.scene, SETTLING)

    def gather(self) -> None:
        read = dict(committed(self.scene.witness.bootstrap, self.topics))
        self._evidence = Evidence(self.scene.workers.programs(), self._open, read)

    def judge(self, load_end: float, end: float) -> Findings:
        verdict = judge(self._evidence)
        begin = self.scene.begin
        ended = [each for each in verdict.transactions if each.outcome == "committed"]
        read = (poll.time - begin for poll in verdict.polls for _ in poll.records)
        return Findings(
            verdict.broken,
            self._rows(verdict, load_end - begin),
            [
                Chart(
                    "Transactions committed a second",
                    {"committed": rate((each.over - begin for each in ended), end - begin)},
                    "/s",
                ),
                Chart("Records polled a second", {"polled": rate(read, end - begin)}, "/s"),
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
        why = Counter(each.why.partition(":")[0] for each in verdict.transactions if each.why)
        ended = [each for each in verdict.transactions if each.outcome == "committed"]
        slowest = sorted(ended, key=lambda each: each.begins - each.over)[:3]
        clients = {name: sum(map(len, read.values())) for name, read in self._evidence.readers.items()}
        return [
            (
                "transactions",
                f"{len(verdict.transactions)}: "
                + ", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common())
                + f" ({outcomes['committed'] / max(seconds, 1.0):.0f}/s committed)",
            ),
            ("errors", ", ".join(f"{count} × {each}" for each, count in why.most_common()) or "none"),
            ("not notified", ", ".join(f"{count} × {each}" for each, count in sorted(verdict.found.items())) or "none"),
            ("latency of commit", quantiles(each.over - each.commits for each in ended)),
            ("of a transaction", quantiles(each.over - each.begins for each in ended)),
            ("slowest", "; ".join(self._described(each.begins, each.over) for each in slowest)),
            ("fenced", "; ".join(f"{name}, {reason}" for name, reason in verdict.fenced.items()) or "none"),
            ("polls", f"{len(verdict.polls)}, {sum(len(each.records) for each in verdict.polls)} records"),
            ("committed records", ", ".join(f"{count} as {name} reads them" for name, count in clients.items())),
        ]

    def _described(self, since: float, until: float) -> str:
        """A period, and the injections in it."""
        done = self.scene.log.during(since, until)
        during = f" during {' and '.join(done)}" if done else ""
        return f"{until - since:.1f} s until {until - self.scene.begin:.0f} s{during}"


def await_settled(scene: Scene, seconds: float) -> list[str]:
    """Wait until no transaction is open; returns the partitions in which one is still open after so many seconds."""
    until = time.monotonic() + seconds
    while True:
        try:
            stable = scene.witness.ends(committed=True)
            ends = scene.witness.ends()
        except KafkaException as error:
            open_ = [f"the nodes do not answer: {error}"]
        else:
            open_ = [f"{t}-{p}, {stable[t, p]} of {end}" for (t, p), end in ends.items() if stable[t, p] < end]
        if not open_ or time.monotonic() > until:
            return open_
        time.sleep(0.5)


def committed(bootstrap: str, topics: Iterable[str]) -> Iterator[tuple[str, dict[str, list[Received]]]]:
    """Each client, and the committed records that it reads."""
    for client in (OTTLA, JAVA, LIBRDKAFKA, AIOKAFKA):
        yield client.name, {topic: client.consume(bootstrap, topic, COMMITTED, READING) for topic in topics}
