"""Inputs of the fuzzer: what is exercised, and with which bytes.

An input is a file whose folder says what is exercised (``found/batch/``, ``found/apis.fetch.FetchResponse 4/``), so
that it means the same when messages are added. The fuzzer itself knows only bytes: there, two in front choose.
"""

import base64
import gzip
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.fuzz.codecs import Codec
from tests.fuzz.exercises import OTHERS, message

HERE = Path(__file__).parent
FOUND = HERE / "found"
"""What was once found, and must never be again."""
CORPUS = HERE / "corpus.jsonl.gz"
"""Inputs that reached every corner of the codec which the fuzzer has ever found."""


LONGEST = 4096
"""Bytes of an input: more make the fuzzer slow, and find nothing else."""


class Input(NamedTuple):
    """What is exercised: one of `OTHERS`, or a message's name; and the bytes."""

    name: str
    data: bytes

    @property
    def path(self) -> Path:
        """Where it is kept if it is found."""
        return FOUND / self.name / hashlib.sha256(self.data).hexdigest()[:12]


def exercised(codec: Codec, given: Input) -> object:
    """What one copy of the codec makes of an input."""
    if given.name in OTHERS:
        return OTHERS[given.name](codec, given.data)
    return message(codec, given.name, given.data)


def found() -> Iterator[Input]:
    """The files below `FOUND`."""
    for path in sorted(FOUND.glob("*/*")):
        yield Input(path.parent.name, path.read_bytes())


def packed(path: Path) -> Iterator[Input]:
    """The inputs of a corpus; none, if there is no such file."""
    if not path.exists():
        return
    with gzip.open(path, "rt") as lines:
        for line in lines:
            name, data = json.loads(line)
            yield Input(name, base64.b64decode(data))


def pack(inputs: list[Input], path: Path) -> None:
    """The opposite; the same inputs give the same file."""
    lines = [json.dumps([name, base64.b64encode(data).decode()]) for name, data in sorted(set(inputs))]
    path.write_bytes(gzip.compress("\n".join([*lines, ""]).encode(), mtime=0))


class Choice:
    """What the first two bytes of the fuzzer's inputs choose: as often a message as something else."""

    def __init__(self, codec: Codec) -> None:
        self._messages, self._others = list(codec.declared), list(OTHERS)

    def __contains__(self, name: str) -> bool:
        return name in OTHERS or name in self._messages

    def chosen(self, raw: bytes) -> Input | None:
        """The input that the fuzzer means."""
        if len(raw) < 2:
            return None
        number = raw[0] >> 1 | raw[1] << 7
        names = self._messages if raw[0] & 1 else self._others
        return Input(names[number % len(names)], raw[2:])

    def raw(self, given: Input) -> bytes:
        """The opposite."""
        is_message = given.name not in OTHERS
        number = (self._messages if is_message else self._others).index(given.name)
        return bytes((number << 1 & 0xFF | is_message, number >> 7)) + given.data
