"""Recognises the records of refused batches by their content: some may be stored, and their client sends them again.

`ottla.proxy.clients.windows` tells why, and `ottla.proxy.clients.refused_memory` how much memory they take.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from ottla.errors import ProducerFenced

OUTCOME_UNKNOWN = "the outcome of an earlier batch of this producer is unknown"
_COUNTED = _NUMBERED = 100
"""Approximate bytes of memory for a record in `RememberedRecords`: for its content, and for its sequence."""


class Fingerprint(NamedTuple):
    """Two hashes of a record's key, value and headers.

    Attributes:
        timed: with its timestamp.
        numbered: with its epoch and sequence instead.
    """

    timed: int
    numbered: int


class RefusedRecords(NamedTuple):
    """The remembered records of refused batches, as the journal has them.

    Attributes:
        stored, others, unknown: `Fingerprint.timed` of stored records, of records that are not stored, and of records
            with an unknown outcome.
        numbered: `Fingerprint.numbered` -> `Fingerprint.timed`.
    """

    stored: Sequence[int] = ()
    others: Sequence[int] = ()
    unknown: Sequence[int] = ()
    numbered: Mapping[int, int] = MappingProxyType({})


class RememberedRecords:
    """Remembers the records of refused batches by their fingerprints."""

    def __init__(self) -> None:
        self._by: dict[bool | None, Counter[int]] = {True: Counter(), False: Counter(), None: Counter()}
        """`Fingerprint.timed` of records that are stored, that are not, and whose outcome is unknown."""
        self._numbered: dict[int, int] = {}
        """`Fingerprint.numbered` -> `Fingerprint.timed`."""

    def add(self, timed: int, stored: bool | None) -> None:
        self._by[stored][timed] += 1

    def number(self, numbered: int, timed: int) -> None:
        self._numbered[numbered] = timed

    def all(self) -> RefusedRecords:
        stored, others, unknown = (tuple(self._by[each].elements()) for each in (True, False, None))
        return RefusedRecords(stored, others, unknown, {**self._numbered})

    @property
    def memory(self) -> int:
        """Approximate bytes."""
        return _COUNTED * sum(map(len, self._by.values())) + _NUMBERED * len(self._numbered)

    @property
    def matters(self) -> bool:
        return bool(self._by[True] or self._by[None])

    def take(self, fingerprints: Iterable[Fingerprint]) -> tuple[set[int], bool]:
        """Forget these records; returns the indexes of stored ones, and whether any other is remembered.

        Raises:
            ProducerFenced: the outcome of one of them is unknown.
        """
        found: set[int] = set()
        known = False
        asked = list(fingerprints)
        # The record that was refused may have another time now. Look at all before forgetting one.
        records = [self._numbered.get(numbered, timed) for timed, numbered in asked]
        if not self._by[None].keys().isdisjoint(records):
            raise ProducerFenced(OUTCOME_UNKNOWN)
        for index, each in enumerate(records):
            self._numbered.pop(asked[index].numbered, None)
            if _took(self._by[True], each):
                found.add(index)
            else:
                known = _took(self._by[False], each) or known
        return found, known


def _took(counted: Counter[int], one: int) -> bool:
    if one not in counted:
        return False
    counted[one] -= 1
    if not counted[one]:
        del counted[one]
    return True
