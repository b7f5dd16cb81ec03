"""``python -m tests.bench first``: the time from the start of Python until a program has its first record.

Each program is a new process, which imports its client, connects to brokerlite, and reads; `ottla --help` only prints.
In every round each program runs once, so that a machine that slows down slows all of them. A ratio says how much more
processor time a program takes than aiokafka's, and is taken within each round; the output has its median and, in
brackets, its quartiles.
"""

import argparse
import os
import statistics
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager

import ottla.sync
from ottla.testing import Broker
from tests.bench.clients.task import Figures
from tests.patience import HUNG

TOPIC = "greetings"
AIOKAFKA = "aiokafka"
_END = """
import sys, time
print(record, time.process_time(), len(sys.modules))
"""
_LOOP = """
import {loop}, {module}, sys
async def read():
    async with {module}.connect(sys.argv[1]) as client, client.consumer("greetings") as consumer:
        async for batch in consumer:
            return next(iter(batch)).value
record = {loop}.run(read{call})
"""
PROGRAMS = {
    "ottla, trio": _LOOP.format(loop="trio", module="ottla", call=""),
    "ottla, asyncio": _LOOP.format(loop="asyncio", module="ottla.aio", call="()"),
    "ottla, blocking": """
        import ottla.sync, sys
        with ottla.sync.connect(sys.argv[1]) as client, client.consumer("greetings") as consumer:
            for batch in consumer:
                record = next(iter(batch)).value
                break
        """,
    "ottla consume": """
        import contextlib, io, os, sys, ottla.cli
        sys.argv = ["ottla", "consume", "greetings", "--count", "1", "--bootstrap", sys.argv[1]]
        out = os.dup(1)
        read, write = os.pipe()
        os.dup2(write, 1)
        with contextlib.suppress(SystemExit):
            ottla.cli.main()
        os.dup2(out, 1)
        record = os.read(read, 100).rstrip()
        """,
    "ottla --help": """
        import contextlib, os, sys, ottla.cli
        sys.argv = ["ottla", "--help"]
        out = os.dup(1)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        with contextlib.suppress(SystemExit):
            ottla.cli.main()
        sys.stdout.flush()
        os.dup2(out, 1)
        record = b"hello"
        """,
    AIOKAFKA: """
        import asyncio, sys
        from aiokafka import AIOKafkaConsumer
        async def read():
            consumer = AIOKafkaConsumer("greetings", bootstrap_servers=sys.argv[1], auto_offset_reset="earliest")
            await consumer.start()
            try:
                return (await consumer.getone()).value
            finally:
                await consumer.stop()
        record = asyncio.run(read())
        """,
    "confluent-kafka": """
        import sys
        from confluent_kafka import Consumer, TopicPartition
        consumer = Consumer({"bootstrap.servers": sys.argv[1], "group.id": "none", "enable.auto.commit": False})
        consumer.assign([TopicPartition("greetings", 0, 0)])
        while (message := consumer.poll(1.0)) is None or message.error():
            pass
        record = message.value()
        consumer.close()
        """,
}
"""Each sets ``record`` to the value of the first record; its argument is the broker's address."""


@contextmanager
def serving() -> Iterator[str]:
    """The address of a broker with a record; every program has run once and warmed the caches of files."""
    with Broker() as broker:
        with ottla.sync.connect(broker.bootstrap) as client:
            client.create_topic(TOPIC, partitions=1)
            with client.producer() as producer:
                producer.send(TOPIC, b"hello")
        for name in PROGRAMS:
            run(name, broker.bootstrap)
        yield broker.bootstrap


def run(name: str, bootstrap: str) -> Figures:
    """Run a program; return its time, its processor time in seconds, and the number of modules that it has imported.

    Raises:
        RuntimeError: it ended otherwise than with the record.
    """
    code = textwrap.dedent(PROGRAMS[name]) + _END
    began = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code, bootstrap], capture_output=True, text=True, timeout=HUNG)
    seconds = time.perf_counter() - began
    match done.stdout.split():
        case ["b'hello'", cpu, modules]:
            return {"seconds": seconds, "cpu_s": float(cpu), "modules": int(modules)}
    raise RuntimeError(f"{name} did not read the record: {done.stdout}{done.stderr}")


def table(found: dict[str, list[Figures]]) -> list[str]:
    lines = [f"{'':<20}{'seconds':>10}{'of CPU':>10}{'modules':>10}{f'× {AIOKAFKA}':>22}"]
    for name, rounds in found.items():
        ratios = [ours["cpu_s"] / theirs["cpu_s"] for ours, theirs in zip(rounds, found[AIOKAFKA], strict=True)]
        low, median, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
        seconds, cpu = (statistics.median(each[what] for each in rounds) for what in ("seconds", "cpu_s"))
        spread = f"{median:.2f} ({low:.2f}-{high:.2f})"
        lines.append(f"{name:<20}{seconds:>10.3f}{cpu:>10.3f}{rounds[0]['modules']:>10}{spread:>22}")
    return lines


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench first", description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=9)
    given = parser.parse_args(words)
    found: dict[str, list[Figures]] = {name: [] for name in PROGRAMS}
    with serving() as bootstrap:
        for _ in range(given.rounds):
            for name, rounds in found.items():
                rounds.append(run(name, bootstrap))
    print(f"time until the first record, load {os.getloadavg()[0]:.1f}")
    print(*table(found), sep="\n")
    return 0
