"""The lines that peer programs read and write: one record a line, fields between tabs.

- A message to be sent: topic, partition (empty: the client chooses), key, value, headers, timestamp in ms (empty: now).
- Its outcome, in the order of the messages: ``ok``, partition, offset; or ``error``, the error's class, its message.
- A record received: partition, offset, timestamp in ms, key, value, headers.

Bytes are in hex and ``-`` is null, so an empty field is zero bytes. Headers are ``name=value`` between commas; their
names hold no tab, comma or equals sign. The Java programs read and write the same lines.
"""

import sys
from collections.abc import Iterable
from dataclasses import dataclass

Headers = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True)
class Message:
    """A message for a client to produce; ``partition`` None leaves the choice to its partitioner."""

    topic: str
    key: bytes | None
    value: bytes | None
    partition: int | None = None
    headers: Headers = ()
    timestamp: int | None = None

    def line(self) -> str:
        fields = (self.topic, _number(self.partition), _hex(self.key), _hex(self.value), _headers(self.headers))
        return "\t".join((*fields, _number(self.timestamp)))

    @classmethod
    def parse(cls, line: str) -> "Message":
        topic, partition, key, value, headers, timestamp = line.rstrip("\n").split("\t")
        return cls(
            topic,
            _bytes(key),
            _bytes(value),
            int(partition) if partition else None,
            _parse_headers(headers),
            int(timestamp) if timestamp else None,
        )


@dataclass(frozen=True)
class Outcome:
    """The client's outcome for a message: partition and offset, or an error and its text."""

    partition: int = -1
    offset: int = -1
    error: str | None = None
    message: str = ""

    def line(self) -> str:
        if self.error is None:
            return f"ok\t{self.partition}\t{self.offset}"
        return f"error\t{self.error}\t{' '.join(self.message.split())}"

    @classmethod
    def parse(cls, line: str) -> "Outcome":
        kind, first, second = line.rstrip("\n").split("\t", 2)
        return cls(int(first), int(second)) if kind == "ok" else cls(error=first, message=second)


@dataclass(frozen=True)
class Received:
    """A record as a client consumed it."""

    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()

    def line(self) -> str:
        place = (str(self.partition), str(self.offset), str(self.timestamp))
        return "\t".join((*place, _hex(self.key), _hex(self.value), _headers(self.headers)))

    @classmethod
    def parse(cls, line: str) -> "Received":
        partition, offset, timestamp, key, value, headers = line.rstrip("\n").split("\t")
        return cls(int(partition), int(offset), int(timestamp), _bytes(key), _bytes(value), _parse_headers(headers))


class InOrder:
    """Prints outcomes in the order of the messages, although they may become known in another order."""

    def __init__(self) -> None:
        self._known: dict[int, Outcome] = {}
        self._next = 0

    def settle(self, number: int, outcome: Outcome) -> None:
        self._known[number] = outcome
        while self._next in self._known:
            print(self._known.pop(self._next).line())
            self._next += 1
        sys.stdout.flush()


def settings(arguments: Iterable[str]) -> dict[str, str]:
    """``key=value`` arguments as a dict."""
    return dict(argument.split("=", 1) for argument in arguments)


def _number(value: int | None) -> str:
    return "" if value is None else str(value)


def _hex(value: bytes | None) -> str:
    return "-" if value is None else value.hex()


def _bytes(field: str) -> bytes | None:
    return None if field == "-" else bytes.fromhex(field)


def _headers(headers: Headers) -> str:
    return ",".join(f"{name}={_hex(value)}" for name, value in headers)


def _parse_headers(field: str) -> Headers:
    pairs = (pair.split("=", 1) for pair in field.split(",")) if field else ()
    return tuple((name, _bytes(value)) for name, value in pairs)
