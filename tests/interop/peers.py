"""Clients, as programs that tests start: Java, librdkafka, aiokafka, kafkajs, sarama, franz-go, ottla, and kcat.

Rules of this file:
- A peer runs in a process of its own, with a bound on its time, and is ended with the test that started it.
- Calls block: under trio, use ``await trio.to_thread.run_sync(partial(JAVA.produce, …))``.
- Settings have the client's own names; each client starts with its own defaults.

    outcomes = JAVA.produce(bootstrap, [Message("flights", b"N14228", b"…")])
    records = LIBRDKAFKA.consume(bootstrap, "flights")

`CLIENTS` holds the four that produce and consume alike, for ``@pytest.mark.parametrize("client", CLIENTS, ids=str)``.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from tests.interop.lines import Message, Outcome, Received
from tests.interop.programs import go_program, java_classes, kafkajs
from tests.kafka import java, need
from tests.patience import HUNG

ROOT = Path(__file__).parents[2]


class PeerFailed(AssertionError):
    """A peer ended with an error or took too long; the text contains its output."""


@dataclass(frozen=True)
class Client:
    """A client with a producer and a consumer."""

    name: str
    command: Callable[[str], list[str]]
    """Role ("produce" or "consume") -> the command to which its arguments are appended."""
    idempotence: Mapping[str, str]
    """The settings that make its producer idempotent; empty where that is the default."""
    small_batches: Mapping[str, str]
    """The settings with which it sends about twenty small records a request, for tests that need many requests."""
    soon_back: Mapping[str, str] = field(default_factory=dict)
    """The settings with which it reconnects within a second; empty where that is the default.

    With its defaults, librdkafka spends most of the time in backoff when connections break every second, and kafkajs
    waits up to 36 s."""
    null_headers: bool = True
    """Whether it can send a header whose value is null."""
    compressions: tuple[str, ...] = ("gzip", "snappy", "lz4", "zstd")
    leaves_out_aborted: bool = True
    """Whether its consumer skips all aborted records, even where transactions of several producers overlap."""

    def __str__(self) -> str:
        return self.name

    def sendable(self, message: Message) -> Message:
        """The message without the parts that the client cannot send."""
        headers = tuple((name, value) for name, value in message.headers if value is not None or self.null_headers)
        return replace(message, headers=headers)

    def producing(
        self, bootstrap: str, config: Mapping[str, str] | None = None, settled: Callable[[], None] = lambda: None
    ) -> "Producing":
        """Start a producer that takes messages one by one; a context manager.

        Args:
            settled: called in a thread for each message, once its outcome is known.
        """
        return Producing(self._command("produce", bootstrap, config), settled)

    def produce(
        self,
        bootstrap: str,
        messages: Iterable[Message],
        config: Mapping[str, str] | None = None,
        timeout: float = HUNG,
    ) -> list[Outcome]:
        """Send ``messages``, and return their outcomes in the same order.

        Raises:
            PeerFailed: the client did not end in good order within ``timeout`` seconds.
        """
        with self.producing(bootstrap, config) as producer:
            for message in messages:
                producer.send(message)
            return producer.finish(timeout)

    def consume(
        self, bootstrap: str, topic: str, config: Mapping[str, str] | None = None, timeout: float = HUNG
    ) -> list[Received]:
        """All records of a topic, from its beginning to its present end; each partition in order.

        Raises:
            PeerFailed: the client did not end in good order within ``timeout`` seconds.
        """
        return [Received.parse(line) for line in _lines(self._command("consume", bootstrap, config, topic), timeout)]

    def _command(self, role: str, bootstrap: str, config: Mapping[str, str] | None, *args: str) -> list[str]:
        settings = {"bootstrap.servers": bootstrap, **(config or {})}
        return [*self.command(role), *args, *(f"{key}={value}" for key, value in settings.items())]


class Running:
    """A running client; a thread reads its output."""

    def __init__(self, command: Sequence[str]) -> None:
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 closed in __exit__
        self._process = subprocess.Popen(
            command, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def heard(self, line: str) -> None:
        """Process a line of output, without its line end; called in the thread."""
        raise NotImplementedError

    def said(self) -> str:
        """The last part of its standard error."""
        file = self._errors.fileno()  # the program shares the position, and continues to write there
        return os.pread(file, 5000, max(0, os.fstat(file).st_size - 5000)).decode(errors="replace")

    @property
    def runs(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """Kill the program."""
        self._process.kill()
        self._process.wait()
        self._reader.join()

    def close(self, timeout: float = HUNG) -> None:
        """Let the program end in good order, which it does when its input ends.

        Raises:
            PeerFailed: it did not end within ``timeout`` seconds, or ends with an error.
        """
        assert self._process.stdin is not None
        try:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
            code = self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise PeerFailed(f"{self} does not end within {timeout:g} s:\n{self.said()}") from None
        self._reader.join()
        if code != 0:
            raise PeerFailed(f"{self} ended with {code}:\n{self.said()}")

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if not line.endswith("\n"):
                break  # it was killed while it wrote this line
            self.heard(line.rstrip("\n"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.kill()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            with contextlib.suppress(BrokenPipeError):
                assert stream is not None
                stream.close()


class Producing(Running):
    """A running producer: any number of calls of `send`, then `finish`."""

    def __init__(self, command: Sequence[str], settled: Callable[[], None]) -> None:
        self._sent = 0
        self._settled = settled
        self.outcomes: list[Outcome] = []
        """The known outcomes, in the order of the messages; the list grows while the producer runs."""
        super().__init__(command)

    def send(self, message: Message) -> None:
        """Pass a message to the client, which puts it into batches."""
        assert self._process.stdin is not None
        with self._listening():
            self._process.stdin.write(message.line() + "\n")
        self._sent += 1

    def flush(self) -> None:
        """Pass on what `send` has collected in the pipe's buffer."""
        assert self._process.stdin is not None
        with self._listening():
            self._process.stdin.flush()

    def check_runs(self) -> None:
        """
        Raises:
            PeerFailed: the client has ended.
        """
        if not self.runs:
            raise PeerFailed(f"{self} has ended too soon:\n{self.said()}")

    @contextlib.contextmanager
    def _listening(self) -> Iterator[None]:
        try:
            yield
        except BrokenPipeError:
            raise PeerFailed(f"{self} has ended too soon:\n{self.said()}") from None

    def finish(self, timeout: float = HUNG) -> list[Outcome]:
        """Let the client send the rest, and return the outcome of every message."""
        self.close(timeout)
        if len(self.outcomes) != self._sent:
            raise PeerFailed(f"{self} has ended:\n{self.said()}")
        return self.outcomes

    def heard(self, line: str) -> None:
        self.outcomes.append(Outcome.parse(line))
        self._settled()

    def __str__(self) -> str:
        return f"the producer, {len(self.outcomes)} of whose {self._sent} messages are settled,"


def _lines(command: Sequence[str], timeout: float, stdin: str = "") -> list[str]:
    """The lines that a program prints, without their ends."""
    return _output(command, timeout, stdin.encode()).decode().splitlines()


def _output(command: Sequence[str], timeout: float, stdin: bytes = b"") -> bytes:
    try:
        done = subprocess.run(command, cwd=ROOT, input=stdin, capture_output=True, timeout=timeout)
    except subprocess.TimeoutExpired as error:
        said = (error.stderr or b"").decode(errors="replace")
        raise PeerFailed(f"{command[0]} took over {timeout} s, having printed {error.stdout!r:.500}:\n{said}") from None
    if done.returncode != 0:
        raise PeerFailed(f"{command[0]} ended with {done.returncode}:\n{done.stderr.decode(errors='replace')}")
    return done.stdout


def _producer(role: str, program: str) -> list[str]:
    assert role == "produce", "it only produces"
    return [go_program(program)]


def _java_command(role: str) -> list[str]:
    return java(role.capitalize(), classes=java_classes())


def _python_command(module: str) -> Callable[[str], list[str]]:
    return lambda role: [sys.executable, "-m", module, role]


JAVA = Client("java", _java_command, idempotence={}, small_batches={"batch.size": "400"})
LIBRDKAFKA = Client(
    "librdkafka",
    _python_command("tests.interop.librdkafka_peer"),
    idempotence={"enable.idempotence": "true"},
    small_batches={"batch.num.messages": "20"},
    soon_back={
        "reconnect.backoff.ms": "10",
        "reconnect.backoff.max.ms": "50",
        "retry.backoff.ms": "10",
        "retry.backoff.max.ms": "50",
    },
)
AIOKAFKA = Client(
    "aiokafka",
    _python_command("tests.interop.aiokafka_peer"),
    idempotence={"enable.idempotence": "true"},
    small_batches={"max.batch.size": "400"},
)
KAFKAJS = Client(
    "kafkajs",
    lambda role: kafkajs("peer", role),
    idempotence={"enable.idempotence": "true"},
    small_batches={"records.per.send": "20"},
    soon_back={"retry.backoff.max.ms": "1000"},
    null_headers=False,
    compressions=("gzip",),
    leaves_out_aborted=False,
)
CLIENTS = (JAVA, LIBRDKAFKA, AIOKAFKA, KAFKAJS)
OTTLA = Client("ottla", _python_command("tests.interop.ottla_peer"), idempotence={}, small_batches={})
"""ottla itself."""
SARAMA = Client(
    "sarama",
    lambda role: _producer(role, "sarama_produce"),
    idempotence={},
    small_batches={},
    soon_back={"retry.backoff.ms": "100", "retries": "1000"},
)
FRANZ = Client(
    "franz-go",
    lambda role: _producer(role, "franz_produce"),
    idempotence={},
    small_batches={},
    soon_back={"retry.backoff.ms": "50"},
)
PRODUCERS = (*CLIENTS, SARAMA, FRANZ, OTTLA)
"""All idempotent producers; the clients in Go have no consumer here."""


def kcat(bootstrap: str, *args: str, stdin: bytes = b"", timeout: float = HUNG) -> bytes:
    """The output of kcat, run with ``-b bootstrap`` and ``args``.

    Raises:
        PeerFailed: it ended with an error, or took over ``timeout`` seconds.
    """
    command = [need("kcat", "kcat (once called kafkacat)"), "-b", bootstrap, *args]
    return _output(command, timeout, stdin)


def kcat_produce(bootstrap: str, topic: str, pairs: Iterable[tuple[str, str]], *args: str) -> None:
    """Produce texts: ``(key, value)`` pairs without tabs and line ends; kcat does not report their offsets."""
    lines = "".join(f"{key}\t{value}\n" for key, value in pairs)
    kcat(bootstrap, "-P", "-t", topic, "-K", "\t", *args, stdin=lines.encode())


def kcat_consume(bootstrap: str, topic: str, *args: str) -> list[Received]:
    """All records of a topic, from its beginning to its end, without headers."""
    output = kcat(bootstrap, "-C", "-t", topic, "-o", "beginning", "-e", "-q", *args, "-f", "%p %o %T %K %S\\n%k%s\\n")
    received: list[Received] = []
    while output:
        numbers, _, output = output.partition(b"\n")
        partition, offset, timestamp, key_size, value_size = map(int, numbers.split())
        key, output = _take(output, key_size)
        value, output = _take(output, value_size)
        received.append(Received(partition, offset, timestamp, key, value))
        output = output[1:]
    return received


def _take(data: bytes, size: int) -> tuple[bytes | None, bytes]:
    """The first ``size`` bytes, and the rest; a size of -1 is null."""
    return (None, data) if size < 0 else (data[:size], data[size:])


def kcat_metadata(bootstrap: str) -> dict[str, Any]:
    """Brokers, topics and partitions as kcat sees them: ``kcat -L -J``."""
    metadata: dict[str, Any] = json.loads(kcat(bootstrap, "-L", "-J"))
    return metadata


def create_topic(bootstrap: str, topic: str, partitions: int = 1, replicas: int = 1, **config: str) -> None:
    """Create a topic through librdkafka, and return once leaders serve all of its partitions.

    ``config`` has the topic's settings with underscores: ``cleanup_policy="compact"``.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap})
    settings = {name.replace("_", "."): value for name, value in config.items()}
    admin.create_topics([NewTopic(topic, partitions, replicas, config=settings)])[topic].result(timeout=HUNG)
    deadline = time.monotonic() + HUNG
    while why := _not_served(admin, topic, partitions):
        if time.monotonic() > deadline:
            raise PeerFailed(f"topic {topic!r} is not served after {HUNG:g} s: {why}")
        time.sleep(0.02)


def _not_served(admin: AdminClient, topic: str, partitions: int) -> str:
    """The reason why leaders do not serve all of a topic yet; empty if they do.

    Brokers name a leader before it has created its log. If the first batch of a Java producer comes too early for it,
    but the second does not, the leader refuses the first as out of order until its delivery.timeout.ms has passed.
    """
    known = admin.list_topics(topic, timeout=HUNG).topics[topic].partitions.values()
    if len(known) < partitions or any(partition.leader < 0 for partition in known):
        return str(known)
    try:
        latest = OffsetSpec.latest()  # type: ignore[no-untyped-call] # librdkafka's Python has no types here
        asked = admin.list_offsets({TopicPartition(topic, each): latest for each in range(partitions)})
        for each in asked.values():
            each.result(timeout=HUNG)
    except KafkaException as error:
        return str(error)
    return ""
