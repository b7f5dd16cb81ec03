"""What the programs of a chaos run write down: a line of JSON for each event, in a file for each process.

Rules:
- A line is written by one system call, without a buffer: what a killed process did until then is not lost.
- Times are of the system's monotonic clock, which all processes of a machine share.

Events, as ``[kind, time, ...]``:

    sent      key, sequence, how                                 before the record is given to the client
    acked     key, sequence, partition, offset, latency          its receipt
    failed    key, sequence, error, latency                      the client gave up
    assigned  {partition: position}                              from here to `batch`: of members of a group
    revoked   partitions
    lost      partitions
    batch     partition, first, next, count, checksum            before its handler starts
    slow      seconds                                            the handler of this batch will take so long
    refused   error                                              the loop was told that a commit failed
    begins    transaction, legs or batches                       from here to `fenced`: of tellers and transformers
    open      transaction                                        its block was entered
    commits   transaction                                        the block is about to be left without an error
    over      transaction, outcome, error                        ``committed``, ``aborted`` or ``unknown``
    fenced    error                                              the program ends because of a newer producer
    reads     topic, partition, position                         from here to `poll`: of tellers, which have no group
    poll      topic, partition, next, [[offset, key, amount]]    what there was from the position up to ``next``
    log       level, message, more                               of the client, from WARNING on
    waiting   explanation                                        what `client.explain` says that lasts for over a second
    ended                                                        the program ends by itself, and all is well
"""

import json
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

Event = list[Any]


class Journal:
    """The writing side; ``path`` is made if it does not exist."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def write(self, kind: str, *what: object) -> None:
        os.write(self._file, json.dumps([kind, time.monotonic(), *what]).encode() + b"\n")


def read(path: Path) -> Iterator[Event]:
    """The events of a file, without a last one that was cut off."""
    if not path.exists():  # it was killed before it wrote anything
        return
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield json.loads(line)


def checksum(records: Iterable[tuple[int, bytes | None, bytes | None]]) -> int:
    """Of records ``(offset, key, value)``, so that who read them can be compared with what is stored."""
    total = 0
    for offset, key, value in records:
        total = crc32(b"%d %b %b;" % (offset, key or b"", value or b""), total)
    return total
