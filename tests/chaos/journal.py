"""The journals of a chaos run: each process writes a file, with a line of JSON for each event.

Rules:
- A line is written by one system call, without a buffer, so a kill loses no event.
- Times are of the system's monotonic clock, which all processes of a machine share.

Events, as ``[kind, time, ...]``:

    sent      key, sequence, how                                 before the client gets the record
    acked     key, sequence, partition, offset, latency          its receipt
    failed    key, sequence, error, latency                      the client gave up
    assigned  {partition: position}                              from here to `batch`: of members of a group
    revoked   partitions
    lost      partitions
    batch     partition, first, next, count, checksum            before its handler starts
    slow      seconds                                            the handler of this batch will take so long
    refused   error                                              a commit failed, and the loop got the error
    begins    transaction, legs or batches                       from here to `fenced`: of tellers and transformers
    open      transaction                                        its block was entered
    commits   transaction                                        the block is about to end without an error
    over      transaction, outcome, error                        ``committed``, ``aborted`` or ``unknown``
    fenced    error                                              the program ends because of a newer producer
    reads     topic, partition, position                         from here to `poll`: of tellers, which have no group
    poll      topic, partition, next, [[offset, key, amount]]    the records from the position up to ``next``
    log       level, message, more                               of the client, from WARNING on
    waiting   explanation                                        `client.explain`, if the wait lasts for over a second
    ended                                                        the program ends on its own, without an error
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
    """Writes a journal; creates ``path`` if it does not exist."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def write(self, kind: str, *what: object) -> None:
        os.write(self._file, json.dumps([kind, time.monotonic(), *what]).encode() + b"\n")


def read(path: Path) -> Iterator[Event]:
    """The events of a file; an incomplete last line is left out."""
    if not path.exists():  # the process was killed before its first event
        return
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield json.loads(line)


def checksum(records: Iterable[tuple[int, bytes | None, bytes | None]]) -> int:
    """A checksum of records ``(offset, key, value)``, to compare a consumer's records with the stored ones."""
    total = 0
    for offset, key, value in records:
        total = crc32(b"%d %b %b;" % (offset, key or b"", value or b""), total)
    return total
