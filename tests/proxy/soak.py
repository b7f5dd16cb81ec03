"""The proxy under mixed load for a long time: does its memory grow, and is a producer fenced?

    python -m tests.proxy.soak --minutes 120

The load goes through a proxy with a state folder and a report, over brokerlite or over brokers that run already
(``--upstream``):

- a producer for each of four topics: ``passed`` has no rule, ``observed``, ``rewritten`` and ``copied`` have the mode
  of that name, and the records of ``copied`` go to ``archive`` as well
- a producer of transactions to the last two, of which it aborts one in ten
- a consumer group that reads all topics, and consumers that come for a few seconds and leave

Rules:
- Each producer sends at a steady rate, so the proxy does the same work at all times, and only a leak makes it grow.
- The first quarter of the time, `LONGEST_WARM_UP` at most, is the warm-up. After it, the median of the memory in the
  last fifth of the time must not be `MOST_GROWTH` above the one in the first fifth.
- In the end the group has read each acknowledged and committed record once.
"""

import argparse
import random
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import confluent_kafka

from tests.bench.brokers.server import memory_of
from tests.brokerlite.running import BrokerProcess
from tests.interop.peers import create_topic
from tests.kafka import free_ports
from tests.patience import HUNG
from tests.proxy.storms import ProxyProcess

PASSED, OBSERVED, REWRITTEN, COPIED, ARCHIVE = "passed", "observed", "rewritten", "copied", "archive"
WRITTEN = PASSED, OBSERVED, REWRITTEN, COPIED
RULES = f"{OBSERVED}=observe", f"{REWRITTEN}=rewrite", f"{COPIED}=copy:{ARCHIVE}", f"{ARCHIVE}=rewrite"
PARTITIONS = 6
COMPRESSION = {PASSED: "none", OBSERVED: "lz4", REWRITTEN: "none", COPIED: "lz4"}
VALUE = 300
KEYS = 1000
RATE = 200
"""Records a second of each producer."""
STEP = 0.05
"""Seconds between two bursts of a producer."""
IN_TRANSACTION, TRANSACTIONS_PER_SECOND, ABORTED = 20, 4, 10
POLLS = 25
"""Polls for which a passing consumer stays: a few seconds."""
SAMPLED = 2.0
LONGEST_WARM_UP = 900.0
MOST_GROWTH = 0.02


@dataclass
class Findings:
    """The results of a soak.

    Attributes:
        memory: seconds since the start, and the proxy's memory in MB then.
        acknowledged, read: topic -> records.
        errors: of producers and consumers.
    """

    memory: list[tuple[float, float]] = field(default_factory=list)
    acknowledged: Counter[str] = field(default_factory=Counter)
    read: Counter[str] = field(default_factory=Counter)
    errors: list[str] = field(default_factory=list)

    @property
    def expected(self) -> Counter[str]:
        """Topic -> the records that are stored there."""
        return self.acknowledged + Counter({ARCHIVE: self.acknowledged[COPIED]})

    @property
    def fenced(self) -> int:
        return sum("fenced" in error.lower() for error in self.errors)

    @property
    def levels(self) -> tuple[float, float]:
        """The medians of the memory after the warm-up, and in the end."""
        over = self.memory[-1][0]
        begins = min(over / 4, LONGEST_WARM_UP)
        fifth = (over - begins) / 5
        first = [size for at, size in self.memory if begins <= at <= begins + fifth]
        return statistics.median(first), statistics.median(size for at, size in self.memory if at >= over - fifth)

    def failures(self) -> list[str]:
        """Why the soak has failed; empty if it has not."""
        found = [f"error: {error}" for error in self.errors[:5]]
        before, after = self.levels
        if after > before * (1 + MOST_GROWTH):
            found.append(f"the memory grew by {after / before - 1:.1%}")
        found += [
            f"{topic}: {self.read[topic]} records read of {count}"
            for topic, count in self.expected.items()
            if self.read[topic] != count
        ]
        return found

    def lines(self) -> list[str]:
        before, after = self.levels
        return [
            f"memory after the warm-up {before:.1f} MB, in the end {after:.1f} MB: {after / before - 1:+.1%}",
            f"producers fenced: {self.fenced}; errors: {len(self.errors)}",
            *(f"{topic}: {count} records stored, {self.read[topic]} read" for topic, count in self.expected.items()),
        ]


class Soak:
    """The clients of a proxy, each in a thread; a context manager.

    Args:
        rate: records a second of each producer.
    """

    def __init__(self, bootstrap: str, rate: int = RATE) -> None:
        self.findings = Findings()
        self._bootstrap, self._rate = bootstrap, rate
        self._over, self._read_all = threading.Event(), threading.Event()
        self._values = [random.Random(number).randbytes(VALUE) for number in range(100)]
        self._producers = [
            *(threading.Thread(target=self._caught, args=(partial(self._produce, topic),)) for topic in WRITTEN),
            threading.Thread(target=self._caught, args=(self._transact,)),
        ]
        self._consumers = [
            threading.Thread(target=self._caught, args=(call,)) for call in (self._consume, self._come_and_leave)
        ]

    def run(self, seconds: float, pid: int, said: Any = print) -> Findings:
        """Run the load, and sample the memory of the proxy's process."""
        began, told = time.monotonic(), 0.0
        for each in (*self._consumers, *self._producers):
            each.start()
        try:
            while (past := time.monotonic() - began) < seconds and not self.findings.errors:
                self.findings.memory.append((past, memory_of(pid)))
                if past >= told:
                    told += 60.0
                    count, read = self.findings.acknowledged.total(), self.findings.read.total()
                    said(f"{past:6.0f} s: {memory_of(pid):.1f} MB, {count} records acknowledged, {read} read")
                self._over.wait(SAMPLED)
        finally:
            self._over.set()
            for each in self._producers:
                each.join(HUNG)
            end = time.monotonic() + HUNG
            while self.findings.read != self.findings.expected and time.monotonic() < end and not self.findings.errors:
                time.sleep(0.1)
            self._read_all.set()
            for each in self._consumers:
                each.join(HUNG)
        return self.findings

    def _caught(self, call: Any) -> None:
        try:
            call()
        except Exception as error:
            self.findings.errors.append(f"{type(error).__name__}: {error}")

    # -- producers

    def _producer(self, name: str, **options: Any) -> confluent_kafka.Producer:
        return confluent_kafka.Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "client.id": name,
                "enable.idempotence": True,
                "linger.ms": 20,
                **options,
            }
        )

    def _send(self, producer: confluent_kafka.Producer, topic: str, delivered: Any, number: int) -> None:
        key = b"k%d" % (number * 7 % KEYS)
        producer.produce(topic, self._values[number % len(self._values)], key, on_delivery=delivered)

    def _produce(self, topic: str) -> None:
        producer = self._producer(f"of-{topic}", **{"compression.type": COMPRESSION[topic]})

        def delivered(error: Any, _: Any) -> None:
            if error is None:
                self.findings.acknowledged[topic] += 1
            else:
                self.findings.errors.append(f"{topic}: {error}")

        number, began = 0, time.monotonic()
        while not self._over.wait(STEP):
            while number < (time.monotonic() - began) * self._rate:
                self._send(producer, topic, delivered, number)
                number += 1
            producer.poll(0)
        producer.flush(HUNG)

    def _transact(self) -> None:
        producer = self._producer("transactions", **{"transactional.id": "soak"})
        producer.init_transactions(HUNG)
        number = 0
        while not self._over.wait(1 / TRANSACTIONS_PER_SECOND):
            number += 1
            producer.begin_transaction()
            for record in range(IN_TRANSACTION):
                self._send(producer, (REWRITTEN, COPIED)[record % 2], None, number * IN_TRANSACTION + record)
            if number % ABORTED:
                producer.commit_transaction(HUNG)
                self.findings.acknowledged += Counter(dict.fromkeys((REWRITTEN, COPIED), IN_TRANSACTION // 2))
            else:
                producer.flush(HUNG)
                producer.abort_transaction(HUNG)

    # -- consumers

    def _consumer(self, group: str) -> confluent_kafka.Consumer:
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
            }
        )
        consumer.subscribe([*WRITTEN, ARCHIVE])
        return consumer

    def _take(self, consumer: confluent_kafka.Consumer) -> Counter[str]:
        """Topic -> the records that have arrived."""
        found = Counter[str]()
        for message in consumer.consume(1000, 0.2):
            if (error := message.error()) is not None:
                raise confluent_kafka.KafkaException(error)
            found[message.topic() or ""] += 1
        return found

    def _consume(self) -> None:
        consumer = self._consumer("readers")
        while not self._read_all.is_set():
            self.findings.read += self._take(consumer)
        consumer.close()

    def _come_and_leave(self) -> None:
        """Have one consumer after the other join a group of its own, and leave it soon."""
        while not self._over.is_set():
            consumer = self._consumer("passers-by")
            for _ in range(POLLS):
                self._take(consumer)
            consumer.close()


def soaked(folder: Path, seconds: float, upstream: str | None = None, rate: int = RATE, said: Any = print) -> Findings:
    """Run a soak with a proxy of its own, over a broker of its own if there is no ``upstream``."""
    with ExitStack() as stack:
        if upstream is None:
            broker = BrokerProcess(folder / "data", "--partitions", str(PARTITIONS))
            stack.callback(broker.kill)
            upstream = broker.bootstrap
        for topic in (*WRITTEN, ARCHIVE):
            create_topic(upstream, topic, PARTITIONS)
        rules = [option for rule in RULES for option in ("--topic", rule)]
        [report] = free_ports(1)
        options = "--state", str(folder / "state"), "--report", f"127.0.0.1:{report}"
        proxy = ProxyProcess(folder, upstream, *options, *rules)
        stack.callback(proxy.end)
        return Soak(proxy.bootstrap, rate).run(seconds, proxy.pid, said)


def main(arguments: Sequence[str]) -> int:
    """Run a soak; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.proxy.soak", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=120.0)
    parser.add_argument("--rate", type=int, default=RATE, help="records a second of each of the four producers")
    parser.add_argument("--upstream", help="brokers that run already; else brokerlite")
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="ottla-soak-") as folder:
        findings = soaked(Path(folder), asked.minutes * 60, asked.upstream, asked.rate, said=partial(print, flush=True))
    failures = findings.failures()
    print(*findings.lines(), *(failures or ["passed"]), sep="\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
