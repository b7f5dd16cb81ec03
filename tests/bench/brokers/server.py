"""The brokers that the benchmark compares, each as a process of its own with its data in a folder of its own.

Both are set up as users have them. Apache Kafka gets the JVM flags of its own scripts, and its defaults except for the
settings of a single node; brokerlite has its defaults. Both answer without waiting for the disk.
"""

import contextlib
import functools
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import trio
import trustme

import ottla
from ottla.codec.apis.metadata import MetadataRequest, MetadataResponse
from ottla.errors import UnknownTopicOrPartition
from tests import kafka
from tests.bench.clients.canned import PREFIX, topic_names
from tests.bench.clients.process import Broken
from tests.bench.peer import Peer
from tests.tls import CA, kafka_store

READY_SECONDS = 300.0
STOP_SECONDS = 120.0
_GLANCE = 0.002
"""Seconds between two checks whether a broker is ready."""
_METADATA = 1
_TICKS = os.sysconf("SC_CLK_TCK")
JVM = (
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=info",
)
"""The flags of kafka-server-start.sh and kafka-run-class.sh."""


@dataclass(frozen=True)
class Place:
    """Where a broker runs.

    Attributes:
        home: the folder with its data.
        port: of its listener.
        tls: the port of a second one, over TLS; ``None``: there is none.
    """

    home: Path
    port: int
    tls: int | None = None

    @property
    def listeners(self) -> str:
        """The value of ``listeners``."""
        over_tls = f",SSL://{kafka.HOST}:{self.tls}" if self.tls else ""
        return f"PLAINTEXT://{kafka.HOST}:{self.port}{over_tls}"

    def certificates(self) -> dict[str, str]:
        """Write certificates, if it needs them, and return the settings of the broker's own."""
        settings = kafka_store(self.home, trustme.CA(), kafka.HOST) if self.tls else {}
        return {name: value for name, value in settings.items() if "keystore" in name}


class Broker(Protocol):
    """A kind of broker; its settings have the names of Kafka's server.properties."""

    name: str

    def prepare(self, at: Place) -> None:
        """Prepare an empty folder for the first start."""

    def command(self, at: Place) -> list[str]: ...


@dataclass(frozen=True)
class Brokerlite:
    settings: Mapping[str, str] = field(default_factory=dict)
    name = "brokerlite"

    def prepare(self, at: Place) -> None:
        _write(at.home / "broker.properties", {"listeners": at.listeners, **at.certificates(), **self.settings})

    def command(self, at: Place) -> list[str]:
        options = ["--config", str(at.home / "broker.properties"), "--data", str(at.home / "data")]
        return [sys.executable, "-m", "ottla", "broker", *options, "--group-delay", "0"]


@dataclass(frozen=True)
class Apache:
    settings: Mapping[str, str] = field(default_factory=dict)
    name = f"Apache Kafka {kafka.VERSION}"

    def prepare(self, at: Place) -> None:
        [controller] = kafka.free_ports(1)
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{kafka.HOST}:{controller}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL",
            "listeners": f"{at.listeners},CONTROLLER://{kafka.HOST}:{controller}",
            "log.dirs": str(at.home / "data"),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            # By default after a minute: until then the topics of a whole case would fill the disk.
            "log.segment.delete.delay.ms": "500",
        }
        properties = at.home / "server.properties"
        _write(properties, {**settings, **at.certificates(), **self.settings})
        kafka.run("kafka.tools.StorageTool", "format", "-t", kafka.CLUSTER_ID, "-c", properties)

    def command(self, at: Place) -> list[str]:
        java = kafka.need("java", "a JDK, 17 or newer")
        return [java, *JVM, "-cp", kafka.classpath(), "kafka.Kafka", str(at.home / "server.properties")]


def _write(path: Path, settings: Mapping[str, str]) -> None:
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))


def cpu_of(pid: int | None) -> float:
    """The processor time of a process in seconds, user's and system's, of all threads. Linux only."""
    if pid is None:
        return 0.0
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def memory_of(pid: int, what: str = "VmRSS") -> float:
    """Resident memory of a process in MB (10⁶ bytes); ``VmHWM`` is its maximum. Linux only."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    [size] = [line.split()[1] for line in lines if line.startswith(what)]
    return int(size) * 1024 / 1e6


BROKERS: tuple[Broker, Broker] = (Brokerlite(), Apache())
"""Ratios divide the first broker's figure by the second's."""


class Server:
    """A broker below the folder ``home``, which can be started again on its data.

    Args:
        tls: whether it has a second listener, over TLS.

    Attributes:
        name: the name of its kind.
        port, bootstrap: its address; ``bootstrap`` is ``host:port``.
        secured: the attributes of a task that connects over TLS; empty without that listener.
        ready_seconds: how long its last start took.
    """

    def __init__(self, broker: Broker, home: Path, *, tls: bool = False) -> None:
        self.name = broker.name
        self.port, *further = kafka.free_ports(2 if tls else 1)
        self.bootstrap = f"{kafka.HOST}:{self.port}"
        self.secured: dict[str, str] = {}
        if tls:
            self.secured = {"bootstrap": f"{kafka.HOST}:{further[0]}", "ca": str(home / CA)}
        place = Place(home, self.port, *further)
        self._home, self._command = home, broker.command(place)
        self._process: subprocess.Popen[bytes] | None = None
        self.ready_seconds = 0.0
        broker.prepare(place)

    @property
    def pid(self) -> int:
        assert self._process is not None, "it does not run"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> float:
        """Start it; seconds from its exec until its response to Metadata has a leader for every partition.

        Raises:
            Broken: it ended, or took too long.
        """
        with (self._home / "log").open("ab") as log:
            began = time.perf_counter()
            # A process group of its own: otherwise Ctrl-C would end it before its clients.
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        while not self._is_ready():
            if self._process.poll() is not None:
                raise Broken(f"the broker ended while it started:\n{self._said()}")
            if time.perf_counter() - began > READY_SECONDS:
                raise Broken(f"the broker was not ready after {READY_SECONDS:.0f} s:\n{self._said()}")
            time.sleep(_GLANCE)
        self.ready_seconds = time.perf_counter() - began
        return self.ready_seconds

    def _is_ready(self) -> bool:
        with contextlib.suppress(OSError), contextlib.closing(Peer(self.port, timeout=READY_SECONDS)) as peer:
            found = peer.ask(MetadataRequest(topics=None), _METADATA, MetadataResponse)
            led = (each.leader_id >= 0 for topic in found.topics for each in topic.partitions)
            return len(found.brokers) > 0 and all(led)
        return False

    def _said(self) -> str:
        return "\n".join((self._home / "log").read_text(errors="replace").splitlines()[-5:])

    def cpu(self) -> float:
        """As `cpu_of`."""
        return cpu_of(self.pid)

    def memory(self, what: str = "VmRSS") -> float:
        """As `memory_of`."""
        return memory_of(self.pid, what)

    def end(self, sig: signal.Signals = signal.SIGTERM) -> float:
        """End it if it runs; seconds from the signal until its end."""
        if self._process is None:
            return 0.0
        began = time.perf_counter()
        self._process.send_signal(sig)
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise Broken(f"the broker did not stop within {STOP_SECONDS:.0f} s") from None
        finally:
            self._process = None
        return time.perf_counter() - began

    def close(self) -> None:
        """End it if it runs, and remove its data."""
        self.end(signal.SIGKILL)
        shutil.rmtree(self._home / "data", ignore_errors=True)

    @contextlib.contextmanager
    def topic(
        self, partitions: int, *, prefix: str = PREFIX, configs: Mapping[str, str] | None = None
    ) -> Iterator[str]:
        """Create a topic, give the prefix of its name, and remove it with its data in the end.

        After an error `close` removes it: the broker may be gone, and that second error would hide the first.
        """
        [name] = topic_names(1, prefix)
        trio.run(_create, self.bootstrap, name, partitions, configs)
        yield prefix
        trio.run(_delete, self.bootstrap, name)

    def stored(self, partitions: int, *, prefix: str = PREFIX) -> int:
        """The number of records in the topic."""
        [name] = topic_names(1, prefix)
        return trio.run(functools.partial(_count, self.bootstrap, name, partitions))


async def _create(bootstrap: str, name: str, partitions: int, configs: Mapping[str, str] | None) -> None:
    async with ottla.connect(bootstrap) as client:
        await client.create_topic(name, partitions=partitions, configs=configs)
        # Only the leader of a partition knows its end, and Kafka elects it a little after the topic is created. It can
        # take longer than the client tries, on a busy machine.
        end = time.monotonic() + READY_SECONDS
        while True:
            try:
                await client.offsets({(name, each): "end" for each in range(partitions)})
                return
            except UnknownTopicOrPartition:
                if time.monotonic() > end:
                    raise
                await trio.sleep(_GLANCE)


async def _delete(bootstrap: str, name: str) -> None:
    async with ottla.connect(bootstrap) as client:
        with contextlib.suppress(UnknownTopicOrPartition):  # the answer came too late, and the client asked again
            await client.delete_topic(name)


async def _count(bootstrap: str, name: str, partitions: int) -> int:
    async with ottla.connect(bootstrap) as client:
        return sum((await client.offsets({(name, each): "end" for each in range(partitions)})).values())
