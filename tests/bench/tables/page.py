"""The page of the benchmarks: each table stands between two markers, and is written from its result."""

import re
from collections.abc import Iterable
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "benchmarks.md"
PLOT = PAGE.with_name("growth.svg")
VERSIONS = "versions"
"""The name of the place for the versions of all programs."""
_PLACE = "<!-- bench-all: {} -->"
_END = "<!-- /bench-all -->"
_NAMES = re.compile(re.escape(_PLACE).replace(re.escape("{}"), r"([a-z-]+)"))


def names(text: str) -> list[str]:
    """The names of the places in a page, in order."""
    return _NAMES.findall(text)


def place(name: str, lines: Iterable[str]) -> str:
    """A place with its markers. Blank lines make it a block of its own for Markdown."""
    return "\n".join([_PLACE.format(name), "", *lines, "", _END])


def written(text: str, name: str, lines: Iterable[str]) -> str:
    """The page with other contents in a place.

    Raises:
        ValueError: the page does not have the place exactly once.
    """
    pattern = re.compile(re.escape(_PLACE.format(name)) + r"\n.*?" + re.escape(_END), re.DOTALL)
    text, count = pattern.subn(lambda _: place(name, lines), text)
    if count != 1:
        raise ValueError(f"docs/benchmarks.md has {count} places for the table {name!r}, not one")
    return text
