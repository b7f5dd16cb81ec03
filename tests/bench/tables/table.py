"""The form of a table: lines that are measured, and cells that follow from their figures alone.

A result, as JSON, has the figures of every round, so that tables can be written again without measuring again.
"""

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tests.bench.clients.task import Figures

if TYPE_CHECKING:
    from tests.bench.tables.stage import Stage

Found = dict[str, list[Figures] | str]
"""Contestant -> its figures in each round, or why it failed."""
EACH = "each"
"""In a column, the contestant of the row: the table then has a row for each contestant of a line."""
FAILED = "failed"


@dataclass(frozen=True)
class Column:
    """A column, whose cells follow from the figures of a row.

    Attributes:
        figure: the name of the figure (`tests.bench.clients.task` and the measuring modules).
        who: the contestant.
        to: the contestant with which it is compared, within each round; ``None``: the figure itself.
        by: ``times``: the figure divided by the other; ``better``: the other divided by it, for figures of which less
            is better; ``more``: the difference.
        unit: the unit of cells that are no ratios, as a number.
    """

    title: str
    figure: str
    who: str
    to: str | None = None
    by: Literal["times", "better", "more"] = "times"
    digits: int = 2
    unit: float = 1.0

    def cell(self, found: Found, contestant: str) -> str:
        """The median and the quartiles; empty if the line has no such contestants or figures."""
        who, to = (contestant if each == EACH else each for each in (self.who, self.to))
        names = [each for each in (who, to) if each is not None]
        if who == to or any(each not in found for each in names):
            return ""
        sides: list[list[float | None]] = []
        for name in names:
            rounds = found[name]
            if isinstance(rounds, str):
                return FAILED
            sides.append([each.get(self.figure) for each in rounds])
        values = [self._value(*each) for each in zip(*sides, strict=True) if None not in each]
        return spread(values, self.digits) if values else ""

    def _value(self, ours: float, theirs: float | None = None) -> float:
        if theirs is None:
            return ours / self.unit
        match self.by:
            case "times":
                return ours / theirs if theirs else float("inf")
            case "better":
                return theirs / ours if ours else float("inf")
            case "more":
                return (ours - theirs) / self.unit


@dataclass(frozen=True)
class Line:
    """A part of a table that is measured at once.

    Attributes:
        labels: the first cells of its rows.
    """

    labels: tuple[str, ...]
    measure: "Callable[[Stage], Found]"


@dataclass(frozen=True)
class Row:
    """A line that was measured."""

    labels: tuple[str, ...]
    found: Found

    @property
    def failures(self) -> list[str]:
        title = ", ".join(self.labels)
        return [f"{title}, {who}: {why}" for who, why in self.found.items() if isinstance(why, str)]


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table of docs/benchmarks.md.

    Attributes:
        name: the name of its file and of its place in the page.
        heads: the titles of the first columns: of labels, and of contestants if each has a row.
    """

    name: str
    heads: tuple[str, ...]
    columns: tuple[Column, ...]
    lines: tuple[Line, ...]

    def markdown(self, rows: Sequence[Row]) -> Iterator[str]:
        titles = [*self.heads, *(column.title for column in self.columns)]
        yield f"| {' | '.join(titles)} |"
        yield "|---" * len(titles) + "|"
        of_each = any(EACH in (column.who, column.to) for column in self.columns)
        last: tuple[str, ...] = ()
        for row in rows:
            for contestant in row.found if of_each else ("",):
                cells = [*_unrepeated(row.labels, last), *([contestant] if of_each else [])]
                cells += [column.cell(row.found, contestant) for column in self.columns]
                yield "".join(f"| {cell} " if cell else "| " for cell in cells) + "|"
                last = row.labels


def _unrepeated(labels: tuple[str, ...], last: tuple[str, ...]) -> list[str]:
    """The labels, with blanks where the row above begins with the same ones."""
    return ["" if labels[: at + 1] == last[: at + 1] else label for at, label in enumerate(labels)]


def spread(values: Sequence[float], digits: int = 2) -> str:
    """The median and, in brackets, the quartiles."""
    median = f"{statistics.median(values):,.{digits}f}"
    if len(values) < 2:
        return median
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return f"{median} ({low:,.{digits}f}–{high:,.{digits}f})"
