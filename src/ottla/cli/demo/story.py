"""The demo's script, step by step: which process starts when, where the data flow, and the checks at the end.

Rule: every count is compared with the CSV itself; a wrong one ends the demo with exit code 1.
"""

import importlib.util
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import trio
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

import ottla
from ottla.cli.demo import expected, flights, tables
from ottla.cli.demo.children import Child, DemoFailed, Family, family, read_settings, write_settings
from ottla.cli.demo.expected import Days, Difference, Fleet, Scatter
from ottla.cli.demo.security import OPEN, secure
from ottla.codec.partitioners import PARTITIONERS
from ottla.errors import ConfigurationError, TimeoutExpired
from ottla.sdk import discovery
from ottla.sdk.kafka_config import from_kafka_config

PARTITIONS = 6
DIRECT = "flights-direct"
BOOTSTRAP = "bootstrap.servers"
REWRITTEN = "flights"

_START = 30.0
"""Seconds for a server to listen."""
_STEP = 600.0
"""Seconds for any step of the story; on two cores each takes less than thirty."""


@dataclass(frozen=True, kw_only=True)
class Choices:
    """The user's options."""

    kafka: str | None = None
    keep: Path | None = None
    secured: bool = False
    rows: int = flights.ROWS


@dataclass(frozen=True, kw_only=True)
class Truth:
    """The expected results, computed from the CSV."""

    scatter: dict[str, Scatter]
    """By topic; so the demo knows in advance how many aircraft the two services scatter."""
    fleets: dict[str, Fleet]
    names: dict[str, str]
    days: Days


@dataclass(frozen=True, kw_only=True)
class Finding:
    """PySpark's results for a topic."""

    scatter: Scatter
    fleets: dict[str, Fleet]
    difference: Difference

    @classmethod
    def of(cls, said: dict[str, Any]) -> "Finding":
        return cls(
            scatter=Scatter(**said["scatter"]),
            fleets={carrier: Fleet(**fleet) for carrier, fleet in said["fleets"].items()},
            difference=Difference(**said["difference"]),
        )


@dataclass(frozen=True, kw_only=True)
class Findings:
    """PySpark's results: for each topic, and from a stream for the last."""

    topics: dict[str, Finding] = field(default_factory=dict)
    days: Days = field(default_factory=dict)


@dataclass
class Stopwatch:
    """The duration of each step."""

    steps: list[tuple[str, float]] = field(default_factory=list)

    @contextmanager
    def step(self, name: str, seconds: float = _STEP) -> Iterator[None]:
        """Time a step, and limit it.

        Raises:
            TimeoutExpired: it took longer than ``seconds``.
        """
        start = time.monotonic()
        with trio.move_on_after(seconds) as scope:
            yield
        if scope.cancelled_caught:
            raise TimeoutExpired(f"the demo's step {name!r} is not done after {seconds:g} s")
        self.steps.append((name, time.monotonic() - start))


def compute(files: flights.Files, rows: int, direct: str, rewritten: str) -> Truth:
    """Compute the expected results from the package's files."""
    lines = flights.read(files.flights, rows)
    murmur2, crc32 = PARTITIONERS["murmur2"], PARTITIONERS["crc32"]
    return Truth(
        scatter={
            direct: expected.scatter(lines, murmur2, crc32, PARTITIONS),
            rewritten: expected.scatter(lines, murmur2, murmur2, PARTITIONS),
        },
        fleets=expected.fleets(lines, expected.seats_of(files.planes.read_text())),
        names=expected.names_of(files.airlines.read_text()),
        days=expected.days(lines),
    )


def wrongs(truth: Truth, findings: Findings) -> list[str]:
    """Every wrong count, in words; none if all are right."""
    found: list[str] = []
    for topic, scatter in truth.scatter.items():
        finding = findings.topics.get(topic)
        if finding is None:
            found.append(f"{topic}: PySpark reported nothing")
            continue
        if finding.difference:
            found.append(f"{topic}: not every flight is there once: {finding.difference}")
        if finding.scatter != scatter:
            found.append(f"{topic}: expected {scatter}, found {finding.scatter}")
        found += [
            f"{topic}, carrier {carrier}: expected {truth.fleets.get(carrier)}, found {finding.fleets.get(carrier)}"
            for carrier in sorted(truth.fleets.keys() | finding.fleets.keys())
            if truth.fleets.get(carrier) != finding.fleets.get(carrier)
        ]
    return found + [
        f"{day}, as a stream: expected {truth.days.get(day)}, found {findings.days.get(day)}"
        for day in sorted(truth.days.keys() | findings.days.keys())
        if truth.days.get(day) != findings.days.get(day)
    ]


def need_extras() -> None:
    """Check the dependencies.

    Raises:
        ConfigurationError: a package of the extra ``demo`` is not installed.
    """
    wanted = {"pyspark": "pyspark", "pyarrow": "pyarrow", "confluent_kafka": "confluent-kafka"}
    missing = [name for module, name in wanted.items() if importlib.util.find_spec(module) is None]
    if missing:
        raise ConfigurationError(f"the demo needs {', '.join(missing)}: pip install 'ottla[demo]'")


async def tell(choices: Choices, console: Console) -> None:
    """Run the demo.

    Raises:
        DemoFailed: a count is wrong, or a process of the demo failed.
        OttlaError: the broker, the proxy or the data are not available.
    """
    need_extras()
    clock = Stopwatch()
    began = time.monotonic()
    direct, rewritten = _topics(choices)
    tables.opening(console, choices.rows, choices.kafka, choices.secured)
    with clock.step("get the flights, compute the expected results"):
        files = await trio.to_thread.run_sync(flights.files, abandon_on_cancel=True)
        truth = await trio.to_thread.run_sync(compute, files, choices.rows, direct, rewritten, abandon_on_cancel=True)
    with tempfile.TemporaryDirectory(prefix="ottla-demo-") as folder:
        async with family(Path(folder)) as children:
            findings = await _act(choices, Path(folder), children, clock, console, files, direct, rewritten)
    of = findings.topics
    tables.homes(console, of[direct].scatter, of[rewritten].scatter, PARTITIONS)
    tables.fleets(console, of[rewritten].fleets, truth.names)
    if findings.days:  # with few rows, all are of days that the stream has not counted yet
        tables.days(console, findings.days)
    tables.differences(console, {topic: (finding.scatter, finding.difference) for topic, finding in of.items()})
    tables.durations(console, clock.steps, time.monotonic() - began)
    if off := wrongs(truth, findings):
        raise DemoFailed(f"{len(off)} count(s) are wrong. {'; '.join(off)}")
    tables.closing(console, direct, rewritten, choices.kafka, choices.keep)


def _topics(choices: Choices) -> tuple[str, str]:
    """The names of the topics; new ones on a Kafka that is not the demo's own."""
    if choices.kafka is None:
        return DIRECT, REWRITTEN
    now = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    return f"{DIRECT}-{now}", f"{REWRITTEN}-{now}"


async def _act(
    choices: Choices,
    folder: Path,
    children: Family,
    clock: Stopwatch,
    console: Console,
    files: flights.Files,
    direct: str,
    rewritten: str,
) -> Findings:
    """Start all processes, write the flights twice, and let PySpark read them."""
    rows = str(choices.rows)
    data = choices.keep or folder / "kafka-data"
    security = OPEN
    if choices.secured:
        with clock.step("make certificates, users and rights"):
            security = await secure(folder, data, rewritten)
    beginning = "start a broker and the proxy" if choices.kafka is None else "find your Kafka, start the proxy"
    with clock.step(f"{beginning}, create two topics", _START):
        if choices.kafka is None:
            broker = await _start_server(children, "the broker", "broker", "--data", str(data), *security.broker)
        else:  # librdkafka knows no zeroconf://, so the services and PySpark get addresses
            broker = ",".join(await discovery.resolve(choices.kafka, _START))
        at_broker = write_settings(folder / "broker.properties", {BOOTSTRAP: broker, **security.client})
        await _create_topics(at_broker, direct, rewritten)
        rule = f"{rewritten}=rewrite:murmur2"
        proxy = await _start_server(
            children, "the proxy", "proxy", "--upstream", broker, "--topic", rule, *security.proxy
        )
        at_proxy = write_settings(folder / "proxy.properties", {BOOTSTRAP: proxy, **security.client})
    # Spark takes seconds to start; it does so while the flights flow.
    analyst = await children.start(
        "PySpark", "ottla.cli.demo.analyst", at_broker, str(files.flights), str(files.planes), rows, direct, rewritten
    )
    with clock.step("write every flight straight to the broker"):
        await _flow(children, console, "to the broker", at_broker, direct, files, choices.rows)
    with clock.step("write every flight through the proxy"):
        await _flow(children, console, "via the proxy", at_proxy, rewritten, files, choices.rows)
    topics = {}
    with clock.step("read both topics in PySpark"), console.status("PySpark is starting …") as status:
        await analyst.expect()
        await analyst.tell("begin")
        for topic in (direct, rewritten):
            status.update(f"PySpark reads {topic} …")
            topics[topic] = Finding.of(await analyst.expect())
    with clock.step("count by day, in a stream"), console.status("PySpark counts by day, in a stream …"):
        days = (await analyst.expect())["days"]
        await analyst.hear()
    return Findings(topics=topics, days=days)


async def _start_server(children: Family, name: str, command: str, *arguments: str) -> str:
    """Start `ottla command`; return its bootstrap address."""
    child = await children.start(name, "ottla.cli", command, "--json", "--log-level", "warning", *arguments)
    return str((await child.expect())["bootstrap"])


async def _create_topics(settings: str, *topics: str) -> None:
    async with ottla.connect(**from_kafka_config(read_settings(settings))) as client:
        there = set(await client.list_topics()) & set(topics)
        if there:
            raise ConfigurationError(
                f"the topic {', '.join(sorted(there))} exists already: keep this demo in another folder"
            )
        for topic in topics:
            await client.create_topic(topic, partitions=PARTITIONS)


async def _flow(
    children: Family, console: Console, way: str, settings: str, topic: str, files: flights.Files, rows: int
) -> None:
    """Let both services write their rows, and show their progress."""
    services = [
        ("A, ottla.sdk", "ottla.cli.demo.service_sdk", (rows + 1) // 2),
        ("B, confluent-kafka", "ottla.cli.demo.service_librdkafka", rows // 2),
    ]
    columns = (TextColumn("{task.description:<33}"), BarColumn(20), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as progress:
        async with trio.open_nursery() as nursery:
            for name, module, total in services:
                child = await children.start(f"service {name}", module, settings, topic, str(files.flights), str(rows))
                task = progress.add_task(f"{way}: {name}", total=total)
                nursery.start_soon(_follow, child, progress, task, total)


async def _follow(child: Child, progress: Progress, task: TaskID, total: int) -> None:
    """Show a service's reports until it ends."""
    sent = 0
    while said := await child.hear():
        sent = said["sent"]
        progress.update(task, completed=sent)
    if sent != total:
        raise DemoFailed(f"{child.name} wrote {sent} flights instead of {total}")
