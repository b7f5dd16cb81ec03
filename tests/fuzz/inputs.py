"""Inputs of the fuzzer: the name of an exercise, and its bytes.

An input is a file whose folder names the exercise (``found/batch/``, ``found/apis.fetch.FetchResponse 4/``), so it
keeps its meaning when messages are added. libFuzzer knows only bytes: there, the first two choose the exercise.
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
"""Inputs that failed once, and must not fail again."""
CORPUS = HERE / "corpus.jsonl.gz"
"""Inputs that together reach all of the codec's code that the fuzzer has ever reached."""


LONGEST = 4096
"""The maximum size of an input, in bytes: longer ones slow the fuzzer and find no more."""


class Input(NamedTuple):
    """What to exercise (a key of `OTHERS`, or a message's name), and the bytes."""

    name: str
    data: bytes

    @property
    def path(self) -> Path:
        """The file that stores this input if it fails."""
        return FOUND / self.name / hashlib.sha256(self.data).hexdigest()[:12]


def exercised(codec: Codec, given: Input) -> object:
    """The result of one copy of the codec for an input."""
    if given.name in OTHERS:
        return OTHERS[given.name](codec, given.data)
    return message(codec, given.name, given.data)


def found() -> Iterator[Input]:
    """The files below `FOUND`."""
    for path in sorted(FOUND.glob("*/*")):
        yield Input(path.parent.name, path.read_bytes())


def packed(path: Path) -> Iterator[Input]:
    """The inputs of a corpus; none, if the file does not exist."""
    if not path.exists():
        return
    with gzip.open(path, "rt") as lines:
        for line in lines:
            name, data = json.loads(line)
            yield Input(name, base64.b64decode(data))


def pack(inputs: list[Input], path: Path) -> None:
    """Write a corpus, which `packed` reads; equal inputs give an equal file."""
    lines = [json.dumps([name, base64.b64encode(data).decode()]) for name, data in sorted(set(inputs))]
    path.write_bytes(gzip.compress("\n".join([*lines, ""]).encode(), mtime=0))


class Choice:
    """Maps the first two bytes of libFuzzer's inputs to an exercise: half of them to messages, half to the others."""

    def __init__(self, codec: Codec) -> None:
        self._messages, self._others = list(codec.declared), list(OTHERS)

    def __contains__(self, name: str) -> bool:
        return name in OTHERS or name in self._messages

    def chosen(self, raw: bytes) -> Input | None:
        """The input that libFuzzer's bytes stand for."""
        if len(raw) < 2:
            return None
        number = raw[0] >> 1 | raw[1] << 7
        names = self._messages if raw[0] & 1 else self._others
        return Input(names[number % len(names)], raw[2:])

    def raw(self, given: Input) -> bytes:
        """The bytes that stand for an input."""
        is_message = given.name not in OTHERS
        number = (self._messages if is_message else self._others).index(given.name)
        return bytes((number << 1 & 0xFF | is_message, number >> 7)) + given.data
