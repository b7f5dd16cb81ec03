"""Attributes that hold a flow: a flow may end in its first step, before the assignment, so no step may assign them."""

import ast
from collections.abc import Iterator
from pathlib import Path

SDK = Path(__file__).parents[2] / "sdk"


def assigned(node: ast.AST) -> Iterator[tuple[str, ast.expr | None]]:
    """The attributes of ``self`` that a function or class assigns, with the values."""
    for each in ast.walk(node):
        if isinstance(each, ast.Assign | ast.AnnAssign):
            targets = each.targets if isinstance(each, ast.Assign) else [each.target]
            for target in (one for some in targets for one in ast.walk(some)):
                if isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self":
                    yield target.attr, each.value


def begins_flow(value: ast.expr | None) -> bool:
    return isinstance(value, ast.Call) and ast.unparse(value.func) in ("Flow", "LoneFlow")


def test_an_attribute_that_holds_a_flow_is_assigned_only_where_a_flow_begins() -> None:
    holders, wrong = set(), set()
    for path in SDK.rglob("*.py"):
        for kind in (each for each in ast.walk(ast.parse(path.read_text())) if isinstance(each, ast.ClassDef)):
            held = {name for name, value in assigned(kind) if begins_flow(value)}
            holders |= {f"{kind.name}.{each}" for each in held}
            for method in (each for each in kind.body if isinstance(each, ast.FunctionDef) and each.name != "__init__"):
                others = {name for name, value in assigned(method) if not begins_flow(value)}
                wrong |= {f"{kind.name}.{each}, in {method.name}" for each in held & others}
    assert holders >= {"OffsetCommits._sending", "ImplicitJoining._question"}
    assert not wrong
