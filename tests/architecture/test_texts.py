"""Program messages contain no docstring markup, and every docstring follows something that it documents."""

import ast
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parents[2]
PARTS = ("codec", "sdk", "proxy", "brokerlite", "spark", "src/ottla", "src/pyspark_ottla")
SQL = "spark/columns/value_schema.py"
"""Parses Spark's schemas, in which two backticks have a meaning."""


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """The strings of a module that are not docstrings, with their lines."""
    tree = ast.parse(path.read_text())
    alone = {id(each.value) for each in ast.walk(tree) if isinstance(each, ast.Expr)}
    for each in ast.walk(tree):
        if isinstance(each, ast.Constant) and isinstance(each.value, str) and id(each) not in alone:
            yield each.lineno, each.value


def test_no_error_no_line_of_a_log_and_no_option_has_the_markup_of_a_docstring() -> None:
    paths = [each for part in PARTS for each in (ROOT / part).rglob("*.py") if each.relative_to(ROOT).as_posix() != SQL]
    assert len(paths) > 200
    marked = [
        f"{path.relative_to(ROOT)}:{line}: {text[:80]!r}"
        for path in paths
        for line, text in texts(path)
        if "``" in text and text != "``"  # errors search for the mark to remove it
    ]
    assert not marked, "\n".join(marked)


def test_no_string_stands_behind_another_which_it_would_not_explain() -> None:
    def alone(each: ast.stmt) -> bool:
        return isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant) and isinstance(each.value.value, str)

    orphans = [
        f"{path.relative_to(ROOT)}:{second.lineno}"
        for part in PARTS
        for path in (ROOT / part).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(body := getattr(node, "body", None), list)
        for first, second in pairwise(body)
        if alone(first) and alone(second)
    ]
    assert not orphans, "\n".join(orphans)
