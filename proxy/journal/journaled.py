"""Keeps the journal's entry of an object with the object: only the object knows when it changes."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar

Entry = TypeVar("Entry")


@dataclass(slots=True, eq=False)
class Journaled:
    """Keeps its entry in the journal, which is written again whenever its stream or its window changes.

    Each method that changes a field in the entry must call `changed`.
    """

    _entry: Any = field(default=None, init=False, repr=False)

    def entry(self, build: Callable[[Self], Entry]) -> Entry:
        """Return its entry; ``build`` builds it after a change."""
        if self._entry is None:
            self._entry = build(self)
        entry: Entry = self._entry
        return entry

    def changed(self) -> None:
        """Drop its entry, because it has changed."""
        self._entry = None
