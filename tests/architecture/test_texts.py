"""Program messages contain no docstring markup, every docstring follows something that it documents, and the drawing of
a table of states is complete."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).parents[2]
PARTS = ("codec", "sdk", "proxy", "brokerlite", "spark", "src/ottla", "src/pyspark_ottla")
SQL = "spark/columns/value_schema.py"
"""Parses Spark's schemas, in which two backticks have a meaning."""


@cache
def nodes() -> dict[Path, list[ast.AST]]:
    """The nodes of every module."""
    paths = [each for part in PARTS for each in (ROOT / part).rglob("*.py")]
    return {path: list(ast.walk(ast.parse(path.read_text()))) for path in paths}


def texts(found: list[ast.AST]) -> Iterator[tuple[int, str]]:
    """The strings of a module that are not docstrings, with their lines."""
    alone = {id(each.value) for each in found if isinstance(each, ast.Expr)}
    for each in found:
        if isinstance(each, ast.Constant) and isinstance(each.value, str) and id(each) not in alone:
            yield each.lineno, each.value


def test_no_error_no_line_of_a_log_and_no_option_has_the_markup_of_a_docstring() -> None:
    assert len(nodes()) > 200
    marked = [
        f"{path.relative_to(ROOT)}:{line}: {text[:80]!r}"
        for path, found in nodes().items()
        if path != ROOT / SQL
        for line, text in texts(found)
        if "``" in text and text != "``"  # errors search for the mark to remove it
    ]
    assert not marked, "\n".join(marked)


def test_no_string_stands_behind_another_which_it_would_not_explain() -> None:
    def alone(each: ast.stmt) -> bool:
        return isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant) and isinstance(each.value.value, str)

    orphans = [
        f"{path.relative_to(ROOT)}:{second.lineno}"
        for path, found in nodes().items()
        for node in found
        if isinstance(body := getattr(node, "body", None), list)
        for first, second in pairwise(body)
        if alone(first) and alone(second)
    ]
    assert not orphans, "\n".join(orphans)


def test_the_drawing_of_a_table_of_states_names_each_state_and_each_input() -> None:
    drawn, left_out = 0, []
    for path in (each for part in PARTS for each in (ROOT / part).rglob("*.py")):
        if "\nTRANSITIONS: " not in (text := path.read_text()):
            continue
        tree = ast.parse(text)
        drawing = ast.get_docstring(tree) or ""
        tables = [each for each in tree.body if isinstance(each, ast.AnnAssign)]
        types = [ast.unparse(each.annotation) for each in tables if ast.unparse(each.target) == "TRANSITIONS"]
        if "──►" not in drawing:
            continue
        drawn += 1
        left_out += [
            f"{path.relative_to(ROOT)}: {name.id}"
            for enum in tree.body
            if isinstance(enum, ast.ClassDef) and re.search(rf"\b{enum.name}\b", types[0])
            for each in enum.body
            if isinstance(each, ast.Assign) and isinstance(name := each.targets[0], ast.Name)
            if not re.search(rf"\b{name.id}\b", drawing)
        ]
    assert drawn > 3 and not left_out, "\n".join(left_out)
