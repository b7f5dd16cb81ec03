"""Draws the figure of the parts in docs/design.md from the import contracts of pyproject.toml: `make figure`.

Rules:
- An arrow is an import that no contract forbids. The contracts alone decide which arrows there are.
- The places of the parts are chosen here: the command line is at the top, the codec at the bottom, all others in `ROW`.
  Parts of the row that import one another are neighbours. If a contract allows an import that the figure has no place
  for, the drawing fails: change the order of `ROW`.
"""

import re
import tomllib
from itertools import pairwise
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "design.md"
TOP, BOTTOM = "cli", "codec"
ROW = ("spark", "sdk", "proxy", "serve", "brokerlite")
PARTS = (TOP, *ROW, BOTTOM)
TITLE = " src/ottla/cli "

GENERATED = "<!-- Generated, do not edit: `make figure` draws this from the import contracts in pyproject.toml. -->"
_BLOCK = re.compile(rf"{re.escape(GENERATED)}\n```\n.*?```\n", re.DOTALL)

_RAIL = 3
"""The column of the line from the command line to the codec."""
_FIRST = 8
_GAP = 11
"""Characters between two parts of the row, which hold an arrow."""


class Undrawable(Exception):
    """The contracts allow an import that the figure has no place for."""


def contracts() -> list[dict[str, Any]]:
    """The contracts of pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    found: list[dict[str, Any]] = project["tool"]["importlinter"]["contracts"]
    return found


def arrows(contracts: list[dict[str, Any]]) -> dict[str, set[str]]:
    """The parts that each part may import."""
    allowed = {part: {*PARTS} - {part} for part in PARTS}
    for contract in contracts:
        if contract["type"] == "forbidden":
            for part in PARTS:
                if f"ottla.{part}" in contract["source_modules"]:
                    allowed[part] -= {each.removeprefix("ottla.") for each in contract["forbidden_modules"]}
        elif contract["type"] == "protected":
            guarded = {each.removeprefix("ottla.") for each in contract["protected_modules"]}
            for part in PARTS:
                if f"ottla.{part}" not in contract["allowed_importers"]:
                    allowed[part] -= guarded
    return allowed


def drawing(allowed: dict[str, set[str]]) -> str:
    """The figure.

    Raises:
        Undrawable: the figure has no place for an arrow.
    """
    starts: dict[str, int] = {}
    columns: dict[str, int] = {}
    end = _FIRST
    for part in ROW:
        starts[part], columns[part] = end, end + len(part) // 2
        end += len(part) + _GAP
    drawn = {part: {BOTTOM} & allowed[part] for part in ROW} | {TOP: {*ROW, BOTTOM} & allowed[TOP], BOTTOM: set[str]()}

    row = [" "] * end
    for part in ROW:
        _put(row, starts[part], part)
    for left, right in pairwise(ROW):
        drawn[left] |= {right} & allowed[left]
        drawn[right] |= {left} & allowed[right]
        if right in allowed[left] or left in allowed[right]:
            tail, head = "◄" if left in allowed[right] else "─", "►" if right in allowed[left] else "─"
            _put(row, starts[left] + len(left) + 1, tail + "─" * (_GAP - 4) + head)
    for part in PARTS:
        if missing := allowed[part] - drawn[part]:
            where = f"from {part} to {', '.join(sorted(missing))}"
            raise Undrawable(f"no place for the arrow {where}: change the order of ROW")

    called = [columns[part] for part in ROW if part in allowed[TOP]]
    rail = [_RAIL] if BOTTOM in allowed[TOP] else []
    above, below, bottom = [" "] * end, [" "] * end, [" "] * end
    top = _bar(end, rail + called, "┌┬┐")
    _put(top, (rail + called)[0] + (called[-1] - (rail + called)[0] - len(TITLE)) // 2, TITLE)
    for column in called:
        above[column] = "▼"
    callers = [columns[part] for part in ROW if BOTTOM in allowed[part]]
    for column in callers:
        below[column] = "│"
    for line in (above, row, below):
        for column in rail:
            line[column] = "│"
    bottom = _bar(end, rail + callers, "└┴┘")
    # Between two lines that come from above, so that it hides neither.
    middle = len(callers) // 2
    _put(bottom, (callers[middle] + callers[middle + 1] - len(BOTTOM)) // 2 - 2, f"► {BOTTOM} ◄")
    return "\n".join("".join(line).rstrip() for line in (top, above, row, below, bottom)) + "\n"


def _put(line: list[str], column: int, text: str) -> None:
    line[column : column + len(text)] = text


def _bar(width: int, columns: list[int], corners: str) -> list[str]:
    """A horizontal line with a connection at each of the columns."""
    line = [" "] * width
    _put(line, columns[0], "─" * (columns[-1] - columns[0]))
    for column in columns:
        line[column] = corners[1]
    line[columns[0]], line[columns[-1]] = corners[0], corners[2]
    return line


def page() -> str:
    """docs/design.md with the current figure."""
    block = f"{GENERATED}\n```\n{drawing(arrows(contracts()))}```\n"
    text, count = _BLOCK.subn(lambda found: block, PAGE.read_text())
    if count != 1:
        raise LookupError(f"docs/design.md has {count} figures behind {GENERATED}")
    return text


def main() -> None:
    PAGE.write_text(page())


if __name__ == "__main__":
    main()
