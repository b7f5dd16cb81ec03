"""State belongs to the object that decides over it: no object assigns to attributes of another object."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PARTS = ("brokerlite", "sdk/cluster", "sdk/connection", "sdk/consume", "sdk/group")
ALLOWED = {
    "brokerlite/machines/partitions/partition_log.py: batch": "the log stamps the record batch that it was given",
    "brokerlite/machines/partitions/validation.py: batch": "the validation rewrites the record batch that it was given",
    "brokerlite/serve.py: self._nap": "trio moves a deadline by assignment",
    "sdk/consume/partitions/record_sets.py: error": "an exception learns where it happened, and what to do about it",
}
"""``file: object`` -> the reason for the exception."""


def foreign(source: str) -> Iterator[tuple[int, str]]:
    """The assignments to attributes of other objects, each as its line and the object."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
            owner = ast.unparse(node.value)
            if owner not in ("self", "cls"):
                yield node.lineno, owner


def test_the_rule_sees_every_kind_of_assignment() -> None:
    planted = (
        "self.clock.now = 1",
        "wait.ticket, wait.number = 1, 2",
        "made.after += 1",
        "each.size: int = 1",
        "del other.name",
        "for each.index in range(3): pass",
        "with opened() as one.file: pass",
        "groups['g'].grown = True",
    )
    for line in planted:
        assert list(foreign(line)), line
    for line in ("self.size = 1", "cls.names = ()", "found['a'] = other.name", "size: int = one.size"):
        assert not list(foreign(line)), line


def test_no_object_assigns_to_attributes_of_another() -> None:
    paths = [path for part in PARTS for path in (ROOT / part).rglob("*.py")]
    assert len(paths) > 100
    found = [
        (f"{path.relative_to(ROOT).as_posix()}: {owner}", line)
        for path in paths
        for line, owner in foreign(path.read_text())
    ]
    unexpected = [f"{where}, line {line}" for where, line in found if where not in ALLOWED]
    assert not unexpected, "give the state to the object that decides over it:\n" + "\n".join(unexpected)
    assert {where for where, _ in found} == ALLOWED.keys(), "an exception is no longer needed"
