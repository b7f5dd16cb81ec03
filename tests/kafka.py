"""Apache Kafka itself, as a peer for tests.

Rules of this file:
- Kafka's jars come from Maven once, into a cache outside the tree (`OTTLA_CACHE`, else ~/.cache/ottla). The cache also
  has class archives that make brokers start faster.
- A broker starts when a test first asks for it. The session shares it, and the process that started it also ends it
  with the session, even after a failure.
- Without a JDK or Maven, tests are skipped with the reason; in CI a missing peer is a failure.
- This file does not use ottla, which could hide a mistake of ottla.

Fixtures: `kafka` is one node, `kafka_cluster` three, each in its own rack, `old_kafka` one of each release in `OLD`
(`Release` has what each needs on a current JDK). `OTTLA_TEST_KAFKA=host:port` names a running broker to use instead
of the one node; tests that kill nodes are then skipped.
"""

import atexit
import contextlib
import fcntl
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

import pytest

from tests.patience import HUNG, PROGRAM

VERSION = "4.3.1"
MAVENS_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"
CACHE = Path(os.environ.get("OTTLA_CACHE") or Path.home() / ".cache" / "ottla")
HOST = "127.0.0.1"
CLUSTER_ID = "b3R0bGEtYXMtcGVlci0wMA"
ZOOKEEPER_SESSION_SECONDS = 30
"""A broker's session timeout: on a busy machine a starting broker may get no processor time for seconds."""

_PORTS = range(15_000, 32_000)
"""Below the ephemeral ports of systems, so that a free port is still free seconds later."""


@dataclass(frozen=True)
class Release:
    """A version of Kafka and the requirements to run it."""

    version: str
    artifacts: tuple[str, ...]
    """``group:name:version``, and a classifier if there is one; Maven adds their dependencies."""
    folder: str = "apache-kafka"
    """In the cache; a set of other artifacts of the same version needs another folder."""
    zookeeper: bool = False
    """Whether it runs on ZooKeeper, which is among its artifacts."""
    flags: tuple[str, ...] = ()
    """Flags of the JVM: old versions use internals that JDKs since 16 hide."""

    @property
    def home(self) -> Path:
        return CACHE / self.folder / self.version


def _kafka(version: str, *others: str, scala: str = "2.13") -> tuple[str, ...]:
    return f"org.apache.kafka:kafka_{scala}:{version}", *others


NOW = Release(VERSION, _kafka(VERSION, f"org.apache.kafka:kafka-tools:{VERSION}", "org.slf4j:slf4j-simple:1.7.36"))
STREAMS = Release(
    VERSION,
    (
        f"org.apache.kafka:kafka-streams:{VERSION}",
        f"org.apache.kafka:kafka-streams:{VERSION}:test",
        f"org.apache.kafka:kafka-clients:{VERSION}:test",
        "org.junit.jupiter:junit-jupiter-api:5.13.1",
        "org.slf4j:slf4j-simple:1.7.36",
    ),
    folder="kafka-streams",
)
"""Kafka Streams and the programs of its own system tests."""
_LOG4J = "org.slf4j:slf4j-reload4j:1.7.36"
"""Before 4.0 a broker does not start without the classes of Log4j 1."""
_NO_LONGER_IN_THE_JDK = "javax.xml.bind:jaxb-api:2.3.1"
OLD = {
    "0.10": Release(
        "0.10.2.2",
        _kafka("0.10.2.2", _LOG4J, _NO_LONGER_IN_THE_JDK, scala="2.11"),
        zookeeper=True,
        flags=(
            "--add-opens=java.base/java.nio=ALL-UNNAMED",
            "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
            "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
        ),
    ),
    "2.8": Release("2.8.2", _kafka("2.8.2", _LOG4J), zookeeper=True),
    "3.9": Release("3.9.2", _kafka("3.9.2", _LOG4J), zookeeper=True),
}


def absent(reason: str) -> NoReturn:
    """Skip the test because a peer is missing; in CI fail it."""
    if os.environ.get("CI"):
        pytest.fail(f"{reason} (a missing peer is a failure in CI)", pytrace=False)
    pytest.skip(reason)


def need(program: str, package: str) -> str:
    """The path of a peer's program; if it is missing, the test ends as in `absent`."""
    return shutil.which(program) or absent(f"needs `{program}`, which is not on the PATH: install {package}")


def free_ports(count: int) -> list[int]:
    """``count`` unused ports of the loopback address, reserved for this test."""
    ports: list[int] = []
    for port in random.sample(_PORTS, len(_PORTS)):
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind((HOST, port))
            _claim(port)
            ports.append(port)
        if len(ports) == count:
            return ports
    raise OSError(f"no {count} free ports between {_PORTS.start} and {_PORTS.stop}")


_claims: deque[int] = deque()
"""Sockets that reserve free ports against other test processes until the test listens on them."""


def _claim(port: int) -> None:
    """Reserve a port; OSError if another test process has it. The system releases it with the process (Linux only)."""
    if sys.platform != "linux":
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as claim:
        claim.bind(f"\0ottla-tests-port-{port}")
        _claims.append(claim.detach())
    if len(_claims) > 64:  # by now a test listens there
        os.close(_claims.popleft())


def classpath(release: Release = NOW) -> str:
    """The class path of Kafka's brokers, tools and Java clients; the first call downloads the jars (15 to 65 MB)."""
    home = release.home
    libs = home / "libs"
    if libs.exists():
        return f"{libs}/*"
    maven = need("mvn", "Maven")
    with _locked(home):
        if not libs.exists():
            dependencies = "".join(map(_dependency, release.artifacts))
            (home / "pom.xml").write_text(
                "<project><modelVersion>4.0.0</modelVersion>"
                "<groupId>ottla</groupId><artifactId>apache-kafka</artifactId><version>1</version>"
                f"<packaging>pom</packaging><dependencies>{dependencies}</dependencies></project>"
            )
            partial = home / "partial"
            shutil.rmtree(partial, ignore_errors=True)
            copy = [maven, "-q", "-B", "-f", str(home / "pom.xml"), f"{MAVENS_COPY}-dependencies"]
            subprocess.run([*copy, f"-DoutputDirectory={partial}"], check=True, timeout=PROGRAM)
            partial.rename(libs)
    return f"{libs}/*"


def _dependency(artifact: str) -> str:
    """The element of an artifact in Maven's pom.xml."""
    fields = zip(("groupId", "artifactId", "version", "classifier"), artifact.split(":"), strict=False)
    return f"<dependency>{''.join(f'<{name}>{value}</{name}>' for name, value in fields)}</dependency>"


def jar(artifact: str) -> Path:
    """A single jar, for example ``org.apache.kafka:kafka-clients:3.9.2``, without its dependencies."""
    _, name, version = artifact.split(":")
    home = CACHE / "jars"
    path = home / f"{name}-{version}.jar"
    if not path.exists():
        maven = need("mvn", "Maven")
        with _locked(home):
            if not path.exists():
                partial = home / "partial"
                shutil.rmtree(partial, ignore_errors=True)
                command = [maven, "-q", "-B", MAVENS_COPY, f"-Dartifact={artifact}", f"-DoutputDirectory={partial}"]
                subprocess.run(command, check=True, timeout=PROGRAM)
                (partial / path.name).rename(path)
    return path


@contextlib.contextmanager
def _locked(home: Path) -> Iterator[None]:
    """Create a folder and lock downloads between processes: Maven's own store is not safe for concurrent use."""
    home.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def java(
    main: str,
    *args: str | Path,
    log: str = "warn",
    heap: str = "256m",
    classes: Path | None = None,
    release: Release = NOW,
) -> list[str]:
    """The command that runs a class of Kafka or of the folder ``classes``."""
    return [
        need("java", "a JDK, 17 or newer"),
        f"-Xmx{heap}",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        *([f"-XX:SharedArchiveFile={archive}"] if (archive := _archive(release)).exists() else []),
        *release.flags,
        f"-Dorg.slf4j.simpleLogger.defaultLogLevel={log}",
        *([f"-Dlog4j.configuration={_log4j(log)}"] if _LOG4J in release.artifacts else []),
        "-cp",
        f"{classpath(release)}:{classes}" if classes else classpath(release),
        main,
        *map(str, args),
    ]


def _archive(release: Release) -> Path:
    """An archive of a broker's loaded classes (CDS), with which it starts in two thirds of the processor time.

    A JVM rejects archives of others, so each JVM has its own.
    """
    virtual_machine = Path(need("java", "a JDK, 17 or newer")).resolve()
    return release.home / f"classes-{virtual_machine.stat().st_mtime_ns:x}.jsa"


def _make_archive(release: Release) -> None:
    """Start a broker, and let it write the archive when it ends."""
    path = _archive(release)
    partial = path.with_suffix(f".{os.getpid()}")
    with tempfile.TemporaryDirectory(prefix="ottla-kafka-") as home:
        kafka = start(Path(home), 1, release=release, flags=(f"-XX:ArchiveClassesAtExit={partial}",))
        kafka.kill(sig=signal.SIGTERM)
        kafka.stop()
    partial.rename(path)


def _log4j(level: str) -> str:
    """The URL of a Log4j configuration that writes to standard output from a level on."""
    path = CACHE / f"log4j-{level}.properties"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            f"log4j.rootLogger={level.upper()}, out\n"
            "log4j.appender.out=org.apache.log4j.ConsoleAppender\n"
            "log4j.appender.out.layout=org.apache.log4j.PatternLayout\n"
            "log4j.appender.out.layout.ConversionPattern=%p %c %m%n\n"
        )
    return path.as_uri()


def _spawn(command: list[str], log: Path) -> subprocess.Popen[bytes]:
    """Start a program of a cluster, and append its output to a file."""
    with log.open("ab") as file:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # otherwise Ctrl-C would end it before the tests that still use it
        )


@dataclass
class Node:
    """One broker: its addresses and its process. Since 4.0 it is its own controller."""

    id: int
    port: int
    controller_port: int
    relayed_port: int
    relay_port: int
    home: Path
    release: Release = NOW
    heap: str = "512m"
    flags: tuple[str, ...] = ()
    """Flags of the JVM."""
    process: subprocess.Popen[bytes] | None = None
    others: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Additional listeners, by name: the protocol and the port."""
    classes: Path | None = None
    """A folder with classes of plugins."""

    @property
    def log(self) -> Path:
        return self.home / "broker.log"

    def start(self) -> None:
        settings = self.home / "server.properties"
        program, *rest = java(
            "kafka.Kafka", settings, log="info", heap=self.heap, classes=self.classes, release=self.release
        )
        self.process = _spawn([program, *self.flags, *rest], self.log)

    def end(self) -> None:
        """Kill the process; no later start needs its data."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def known_brokers(self) -> int:
        """How many live brokers the node's metadata names; 0 if it does not answer."""
        request = struct.pack(">hhihi", 3, 0, 1, -1, 0)  # Metadata v0, all topics
        try:
            with socket.create_connection((HOST, self.port), timeout=2) as connection:
                connection.sendall(struct.pack(">i", len(request)) + request)
                answer = connection.recv(12, socket.MSG_WAITALL)
        except OSError:
            return 0
        return int(struct.unpack(">iii", answer)[2]) if len(answer) == 12 else 0


@dataclass
class ApacheKafka:
    """A running Kafka, with one node or several; node ids count from 0.

    Each node has a second listener for tests that put a relay between a client and the broker: the node listens on
    `relayed(node)` and advertises `relay(node)`, where the test's relay must listen.
    """

    bootstrap: str
    """``host:port`` of every node, comma-separated."""
    nodes: list[Node] = field(default_factory=list)
    """Empty if the broker runs already (`OTTLA_TEST_KAFKA`)."""
    release: Release = NOW
    zookeeper: subprocess.Popen[bytes] | None = None

    def _node(self, node: int) -> Node:
        if not self.nodes:
            pytest.skip("needs a node of its own: unset OTTLA_TEST_KAFKA")
        return self.nodes[node]

    def kill(self, node: int = 0, sig: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal to a node, and wait for its end unless the signal is STOP or CONT."""
        process = self._node(node).process
        assert process is not None, f"node {node} is down already"
        process.send_signal(sig)
        if sig not in (signal.SIGSTOP, signal.SIGCONT):
            process.wait(timeout=HUNG)
            self.nodes[node].process = None

    def revive(self, node: int = 0) -> None:
        """Restart a node with its data after `kill`, and wait until the cluster is complete."""
        assert self._node(node).process is None, f"node {node} is still running"
        if self.release.zookeeper:
            time.sleep(ZOOKEEPER_SESSION_SECONDS + 1)  # until then ZooKeeper still lists the killed broker
        self.nodes[node].start()
        self.await_nodes()

    def await_nodes(self) -> None:
        """Wait until every running node knows every running node."""
        deadline = time.monotonic() + HUNG
        running = [node for node in self.nodes if node.process is not None]
        while any(node.known_brokers() != len(running) for node in running):
            for node in running:
                if node.process is not None and node.process.poll() is not None:
                    if self.release.zookeeper and "SessionExpiredException" in _tail(node.log):
                        # It was not scheduled for a whole session while it started. A supervisor would start it again.
                        node.start()
                        continue
                    raise RuntimeError(f"Kafka's node {node.id} ended while it started:\n{_tail(node.log)}")
            if time.monotonic() > deadline:
                raise TimeoutError(f"Kafka is not up after {HUNG} s:\n{_tail(running[0].log)}")
            time.sleep(0.05)

    def data(self, node: int = 0) -> Path:
        """The folder with a node's partitions, one folder ``topic-partition`` each."""
        return self._node(node).home / "data"

    def listener(self, name: str, node: int = 0) -> str:
        """``host:port`` of one of the additional listeners of `start`."""
        return f"{HOST}:{self._node(node).others[name][1]}"

    def relayed(self, node: int = 0) -> tuple[str, int]:
        """The address at which a relay reaches the node's second listener."""
        return HOST, self._node(node).relayed_port

    def relay(self, node: int = 0) -> tuple[str, int]:
        """The address that the node's second listener advertises."""
        return HOST, self._node(node).relay_port

    def run(self, main: str, *args: str | Path, timeout: float = HUNG) -> str:
        """Like the function `run`, with the classes of this release."""
        return run(main, *args, timeout=timeout, release=self.release)

    def stop(self) -> None:
        """End every node; logs stay in the session's temporary folder, data does not."""
        for node in self.nodes:
            node.end()
            shutil.rmtree(node.home / "data", ignore_errors=True)
        if self.zookeeper is not None:
            self.zookeeper.kill()
            self.zookeeper.wait()
            self.zookeeper = None


def run(main: str, *args: str | Path, timeout: float = HUNG, release: Release = NOW) -> str:
    """The output of a class of Kafka, for example ``org.apache.kafka.tools.DumpLogSegments``.

    Raises:
        AssertionError: its exit code is not 0; the message is its output.
        subprocess.TimeoutExpired: it took longer than ``timeout`` seconds.
    """
    done = subprocess.run(java(main, *args, release=release), capture_output=True, text=True, timeout=timeout)
    if done.returncode != 0:
        raise AssertionError(f"{main} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def start(
    home: Path,
    count: int,
    settings: Mapping[str, str] | None = None,
    release: Release = NOW,
    heap: str = "512m",
    listeners: Mapping[str, str] | None = None,
    flags: tuple[str, ...] = (),
    classes: Path | None = None,
) -> ApacheKafka:
    """Start ``count`` nodes below the folder ``home``, and wait until they form a cluster.

    ``settings`` are added to each node's server.properties; ``heap`` limits the heap of each JVM; ``listeners`` are
    additional ones, by name with their protocols, for example ``SSL``; ``flags`` are for the JVMs, and
    ``classes`` is a folder with plugins. The caller stops the result.
    """
    if not flags and not _archive(release).exists():
        _make_archive(release)
    listeners = listeners or {}
    zookeeper_port, *ports = free_ports(1 + (4 + len(listeners)) * count)
    each = iter(ports)
    nodes = [
        Node(
            i,
            next(each),
            next(each),
            next(each),
            next(each),
            home / f"node{i}",
            release,
            heap,
            flags,
            classes=classes,
        )
        for i in range(count)
    ]
    for node in nodes:
        node.others = {name: (protocol, next(each)) for name, protocol in listeners.items()}
        node.home.mkdir(parents=True)
        lines = _properties(node, min(3, count))
        lines |= _on_zookeeper(node, zookeeper_port) if release.zookeeper else _on_kraft(node, nodes)
        lines |= settings or {}
        (node.home / "server.properties").write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    kafka = ApacheKafka(",".join(f"{HOST}:{node.port}" for node in nodes), nodes, release)
    atexit.register(kafka.stop)
    if release.zookeeper:
        kafka.zookeeper = _start_zookeeper(home, zookeeper_port, release)
    else:
        _format(nodes)
    for node in nodes:
        node.start()
    kafka.await_nodes()
    return kafka


def _start_zookeeper(home: Path, port: int, release: Release) -> subprocess.Popen[bytes]:
    """Start ZooKeeper without waiting: brokers wait for it themselves."""
    settings = home / "zookeeper.properties"
    settings.write_text(
        f"dataDir={home}/zookeeper\nclientPort={port}\nclientPortAddress={HOST}\n"
        f"admin.enableServer=false\nmaxClientCnxns=0\nmaxSessionTimeout={ZOOKEEPER_SESSION_SECONDS * 1000}\n"
    )
    main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
    return _spawn(java(main, settings, log="info", release=release), home / "zookeeper.log")


def _format(nodes: list[Node]) -> None:
    """Create the data folders of nodes without ZooKeeper.

    The result of Kafka's own tool depends only on the node's id, and the tool takes half as long as a broker to start.
    """
    for node in nodes:
        made = NOW.home / "formatted" / str(node.id)
        if made.exists():
            shutil.copytree(made, node.home / "data")
            continue
        run("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", node.home / "server.properties")
        with _locked(made.parent):
            if not made.exists():
                partial = made.with_name("partial")
                shutil.rmtree(partial, ignore_errors=True)
                shutil.copytree(node.home / "data", partial)
                partial.rename(made)


def _properties(node: Node, replicas: int) -> dict[str, str]:
    protocols = "".join(f",{name}:{protocol}" for name, (protocol, _) in node.others.items())
    others = "".join(f",{name}://{HOST}:{port}" for name, (_, port) in node.others.items())
    return {
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,RELAYED:PLAINTEXT{protocols}",
        "listeners": f"PLAINTEXT://{HOST}:{node.port},RELAYED://{HOST}:{node.relayed_port}{others}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{node.port},RELAYED://{HOST}:{node.relay_port}{others}",
        "log.dirs": str(node.home / "data"),
        "default.replication.factor": str(replicas),
        "offsets.topic.replication.factor": str(replicas),
        "offsets.topic.num.partitions": "5",
        "transaction.state.log.replication.factor": str(replicas),
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "5",
        "group.initial.rebalance.delay.ms": "0",
        "log.retention.hours": "-1",
    }


def _on_kraft(node: Node, nodes: list[Node]) -> dict[str, str]:
    replicas = str(min(3, len(nodes)))
    common = _properties(node, min(3, len(nodes)))
    return {
        "process.roles": "broker,controller",
        "node.id": str(node.id),
        "controller.quorum.voters": ",".join(f"{each.id}@{HOST}:{each.controller_port}" for each in nodes),
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": f"{common['listener.security.protocol.map']},CONTROLLER:PLAINTEXT",
        "listeners": f"{common['listeners']},CONTROLLER://{HOST}:{node.controller_port}",
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": "1",
        # Only clients with a rack read from the replica there.
        "broker.rack": f"rack-{node.id}",
        "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
        # Tests of a cluster wait until it has detected a killed node, so that should be soon. The only node
        # would fence itself after a pause of this length, and its partitions would have no leader for a while.
        # When it was killed, it registers again only after this time.
        "broker.session.timeout.ms": "12000" if len(nodes) == 1 else "4000",
        "broker.heartbeat.interval.ms": "500",
    }


def _on_zookeeper(node: Node, port: int) -> dict[str, str]:
    return {
        "broker.id": str(node.id),
        "zookeeper.connect": f"{HOST}:{port}",
        "zookeeper.session.timeout.ms": str(ZOOKEEPER_SESSION_SECONDS * 1000),
        "zookeeper.connection.timeout.ms": f"{HUNG * 1000:.0f}",  # ZooKeeper starts at the same time
        "delete.topic.enable": "true",  # the default since 1.0
    }


def _tail(log: Path, lines: int = 15) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])


def _session(
    tmp_path_factory: pytest.TempPathFactory, name: str, count: int, release: Release = NOW, attempts: int = 3
) -> Iterator[ApacheKafka]:
    for attempt in range(1, attempts + 1):
        try:
            kafka = start(tmp_path_factory.mktemp(name), count, release=release)
            break
        except RuntimeError as error:
            # Another process took a port between our check and Kafka's bind.
            if attempt == attempts or "Address already in use" not in str(error):
                raise
    try:
        yield kafka
    finally:
        kafka.stop()


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    """Apache Kafka on one node; a test that kills it must revive it."""
    if named := os.environ.get("OTTLA_TEST_KAFKA"):
        yield ApacheKafka(named)
    else:
        yield from _session(tmp_path_factory, "kafka", 1)


@pytest.fixture(scope="session")
def kafka_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    """Apache Kafka on three nodes; a test that kills one must revive it."""
    yield from _session(tmp_path_factory, "kafka-cluster", 3)


@pytest.fixture(scope="module", params=OLD)
def old_kafka(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    """Apache Kafka on one node, one release after another."""
    yield from _session(tmp_path_factory, f"kafka-{request.param}", 1, OLD[request.param])
