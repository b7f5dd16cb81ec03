"""Transactional producers of other clients, as programs that carry out commands, one a line.

    with TRANSACTORS["java"].start(bootstrap, "payments") as producer:
        producer.do("init")
        producer.do("begin")
        producer.send("flights", 0, b"key", b"value")
        producer.do("commit")

Rules of this file:
- A program decides nothing: it calls its client, and prints the result. The tests decide how to handle it, in the same
  way for all clients.
- A program answers each command with one line: ``ok`` and fields, or ``error``, its kind, its class and its message.
- Fields are separated by tabs, bytes are in hex, and ``-`` is null, as in `tests.interop.lines`.

| command | fields | does |
|---|---|---|
| open | ``key=value``… | create another producer, and drop the previous one |
| init, begin, flush, commit, abort | | call the client's method for it |
| send | topic, partition, key, value | send without waiting for the outcome |
| subscribe | topic, ``key=value``… | create another consumer, and drop the previous one |
| poll | | wait a while; the fields are records: ``partition offset key value`` |
| rewind | | move the consumer back to the committed offsets of its group |
| offsets | | add the positions after the last ``poll`` to the transaction |

The kinds of errors are the choices that clients give their users: ``abortable`` (abort, and begin again), ``retriable``
(call again), ``fatal`` (open another producer).
"""

import queue
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, cast

from tests.interop.lines import settings
from tests.interop.peers import PeerFailed, Running
from tests.interop.programs import go_program, java_classes, kafkajs
from tests.kafka import NOW, OLD, Release, java
from tests.patience import HUNG

BOUND = HUNG
"""Seconds within which a client's call must succeed once the broker is up."""
_ENOUGH = HUNG
"""Seconds within which any call of any client returns: all have shorter timeouts."""
Kind = Literal["abortable", "retriable", "fatal"]


class Refused(Exception):
    """A client has raised an error."""

    def __init__(self, kind: Kind, name: str, message: str) -> None:
        super().__init__(f"{name} ({kind}): {message}")
        self.kind = kind
        self.name = name


@dataclass(frozen=True)
class Record:
    """A record that a consumer got."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True)
class TransactorClient:
    """A client with a transactional producer.

    Attributes:
        settings: the client's names for settings that tests need of all clients.
        leaves_out_aborted: whether its consumer skips all aborted records, even where transactions of several producers
            overlap.
        hangs_after: seconds after which a call that still runs will never return, for a client whose calls may hang
            when the broker stops. Only tests that stop the broker need it, and restart the program then.
    """

    name: str
    command: Callable[[], list[str]]
    settings: Mapping[str, str] = field(default_factory=dict)
    leaves_out_aborted: bool = True
    hangs_after: float | None = None

    def __str__(self) -> str:
        return self.name

    def start(
        self,
        bootstrap: str,
        transactional_id: str,
        config: Mapping[str, str] | None = None,
        *,
        enough: float | None = None,
    ) -> "Transactor":
        """Start a program with one producer, which is not initialized yet; a context manager.

        Args:
            config: settings of the producer, in the client's own names.
            enough: seconds within which its calls return; by default long enough for any call.
        """
        return Transactor(self, bootstrap, transactional_id, config or {}, enough or _ENOUGH)


def _java(release: Release = NOW) -> Callable[[], list[str]]:
    return lambda: java("Transact", classes=java_classes(), release=release)


def _python(client: str) -> Callable[[], list[str]]:
    return lambda: [sys.executable, "-m", f"tests.interop.{client}_transact"]


TRANSACTORS = {
    each.name: each
    for each in (
        TransactorClient("java", _java(), {"max.block.ms": "20000"}),
        # The last release before version 2 of transactions (KIP-890), and an old one.
        TransactorClient("java-3.9", _java(OLD["3.9"]), {"max.block.ms": "20000"}),
        TransactorClient("java-2.8", _java(OLD["2.8"]), {"max.block.ms": "20000"}),
        # In 2.16 send_offsets_to_transaction never returns, in spite of its timeout, if the connection breaks between
        # AddOffsetsToTxn and FindCoordinator.
        TransactorClient("librdkafka", _python("librdkafka"), {"reconnect.backoff.max.ms": "500"}, hangs_after=15.0),
        TransactorClient("aiokafka", _python("aiokafka")),
        TransactorClient("franz-go", lambda: [go_program("franz")]),
        TransactorClient("sarama", lambda: [go_program("sarama")]),
        TransactorClient("kafkajs", lambda: kafkajs("transact"), leaves_out_aborted=False),
        TransactorClient("kafka-python", _python("kafka_python"), {"max.block.ms": "20000"}),
    )
}


class Transactor(Running):
    """A running program, with one producer at a time, and one consumer."""

    def __init__(
        self, client: TransactorClient, bootstrap: str, transactional_id: str, config: Mapping[str, str], enough: float
    ) -> None:
        self.client = client
        self._bootstrap = bootstrap
        self._config = {"bootstrap.servers": bootstrap, "transactional.id": transactional_id, **client.settings}
        self._config |= config
        self._answers: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._enough = enough
        super().__init__(client.command())
        self.open()

    def open(self) -> None:
        """Replace the producer by another one."""
        self.do("open", *(f"{key}={value}" for key, value in self._config.items()))

    def do(self, command: str, *fields: str, timeout: float = 0.0) -> list[str]:
        """Carry out a command, and return the fields of the response.

        Raises:
            Refused: the client has raised an error.
            PeerFailed: no response came within ``timeout`` seconds (0: long enough for any call), or the program has
                ended.
        """
        assert self._process.stdin is not None
        timeout = timeout or self._enough
        try:
            self._process.stdin.write("\t".join((command, *fields)) + "\n")
            self._process.stdin.flush()
            answer = self._answers.get(timeout=timeout).split("\t")
        except (BrokenPipeError, queue.Empty):
            said = "ended" if not self.runs else f"did not answer within {timeout:g} s"
            raise PeerFailed(f"{self.client} {said}, when asked to {command}:\n{self.said()}") from None
        if answer[0] == "ok":
            return answer[1:]
        kind, name, message = answer[1:]
        raise Refused(cast(Kind, kind), name, message)

    def insist(self, command: str) -> None:
        """Carry out a command, and repeat it while the client's error is retriable, for at most `BOUND` seconds."""
        deadline = time.monotonic() + BOUND
        while True:
            try:
                self.do(command)
                return
            except Refused as error:
                if error.kind != "retriable" or time.monotonic() > deadline:
                    raise

    def send(self, topic: str, partition: int, key: bytes, value: bytes) -> None:
        """Send a record; an error may come with a later command."""
        self.do("send", topic, str(partition), key.hex(), value.hex())

    def subscribe(self, topic: str, group: str, config: Mapping[str, str] | None = None) -> None:
        """Replace the consumer by another one, which begins at the committed offsets of the group."""
        known = {
            "bootstrap.servers": self._bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": "false",
            "isolation.level": "read_committed",
            "session.timeout.ms": "15000",
            "heartbeat.interval.ms": "300",
        }
        self.do("subscribe", topic, *(f"{key}={value}" for key, value in (known | dict(config or {})).items()))

    def poll(self) -> list[Record]:
        """The records that the consumer reads within half a second."""
        return [_record(each) for each in self.do("poll")]

    def heard(self, line: str) -> None:
        if line.partition("\t")[0] in ("ok", "error"):  # old Kafkas log to standard output, too
            self._answers.put(line)

    def __str__(self) -> str:
        return str(self.client)


def _record(text: str) -> Record:
    partition, offset, key, value = text.split(" ")
    return Record(int(partition), int(offset), _bytes(key), _bytes(value))


def _bytes(text: str) -> bytes | None:
    return None if text == "-" else bytes.fromhex(text)


def _hex(data: bytes | None) -> str:
    return "-" if data is None else data.hex()


# -- for the programs


class Peer(Protocol):
    """The operations of a program on its client."""

    def open(self, config: dict[str, str]) -> None: ...

    def init(self) -> None: ...

    def begin(self) -> None: ...

    def send(self, topic: str, partition: int, key: bytes | None, value: bytes | None) -> None: ...

    def flush(self) -> None: ...

    def commit(self) -> None: ...

    def abort(self) -> None: ...

    def subscribe(self, topic: str, config: dict[str, str]) -> None: ...

    def poll(self) -> Sequence[Record]: ...

    def rewind(self) -> None: ...

    def offsets(self) -> None: ...

    def kind(self, error: Exception) -> tuple[Kind, str]:
        """The kind of an error, and its name."""


def serve(peer: Peer) -> None:
    """Carry out the commands on standard input."""
    for line in sys.stdin:
        try:
            answer = ["ok", *_carry_out(peer, *line.rstrip("\n").split("\t"))]
        except Exception as error:  # any error of the client is the response
            kind, name = peer.kind(error)
            answer = ["error", kind, name, " ".join(str(error).split())]
        print("\t".join(answer), flush=True)


def _carry_out(peer: Peer, command: str, *fields: str) -> list[str]:
    match command:
        case "open":
            peer.open(settings(fields))
        case "send":
            topic, partition, key, value = fields
            peer.send(topic, int(partition), _bytes(key), _bytes(value))
        case "subscribe":
            peer.subscribe(fields[0], settings(fields[1:]))
        case "poll":
            return [f"{r.partition} {r.offset} {_hex(r.key)} {_hex(r.value)}" for r in peer.poll()]
        case "init" | "begin" | "flush" | "commit" | "abort" | "rewind" | "offsets":
            getattr(peer, command)()
        case _:
            raise ValueError(command)
    return []
