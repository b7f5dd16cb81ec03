"""State belongs to the object that decides over it: no object assigns to attributes of another object."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PARTS = ("brokerlite", "codec", "proxy", "sdk", "spark", "src/ottla")
ALLOWED = {
    "brokerlite/machines/partitions/partition_log.py: batch": "the log stamps the record batch that it was given",
    "brokerlite/machines/partitions/validation.py: batch": "the validation rewrites the record batch that it was given",
    "brokerlite/machines/consumer_groups/subscriptions.py: options": "RE2 takes its options by assignment",
    "brokerlite/serve.py: self._nap": "trio moves a deadline by assignment",
    "proxy/clients/opening.py: batch": "the proxy stamps the record batch that it has checked",
    "proxy/serve.py: self._nap": "trio moves a deadline by assignment",
    "sdk/consume/partitions/record_sets.py: error": "an exception learns where it happened, and what to do about it",
    "sdk/drivers/trio.py: self._alarm": "trio moves a deadline by assignment",
    "sdk/gate.py: HELD": "one statement swaps the lines: between two, Python could call a signal handler",
    "sdk/signatures.py: call": "`inspect` and `help` read the signature and the text of a function there",
    "spark/reading/batch_reader.py: error": "the error of the codec gets the advice that only Spark's options allow",
    "src/ottla/cli/commands.py: program.commands[sys.argv[1]]": "a command of click has its callback in an attribute",
    "src/ottla/cli/commands.py: option": "typer's options take their metavar only by assignment here",
    "src/ottla/cli/exits.py: finishing": "trio moves a deadline by assignment",
    "src/ottla/cli/exits.py: whole": "trio moves a deadline by assignment",
    "src/ottla/cli/options.py: run": "Python gives a function its name, docstring and signature by assignment",
    "src/ottla/errors.py: error": "the function completes the exception that it has created",
    "src/ottla/late_dataclass.py: method": "Python gives a function its qualified name by assignment",
    "src/ottla/serve/health.py: scope": "trio moves a deadline by assignment",
    "src/ottla/tls.py: context": "ssl configures a context by assignment",
}
"""``file: object`` -> the reason for the exception."""


def foreign(source: str) -> Iterator[tuple[int, str]]:
    """The assignments to attributes of other objects, each as its line and the object.

    An exception belongs to the code that it passes: a handler adds where the error is, which only it knows. And only
    an assignment sets the cause of an exception that is not raised here.
    """
    tree = ast.parse(source)
    caught = {id(each) for node in ast.walk(tree) if isinstance(node, ast.ExceptHandler) for each in _changes(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
            owner = ast.unparse(node.value)
            if owner not in ("self", "cls") and node.attr != "__cause__" and id(node) not in caught:
                yield node.lineno, owner


def _changes(handler: ast.ExceptHandler) -> Iterator[ast.Attribute]:
    """The attributes of the exception that a handler caught."""
    for each in ast.walk(handler):
        if isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name) and each.value.id == handler.name:
            yield each


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
        "try: pass\nexcept ValueError as error: other.path = 1",
        "try: pass\nexcept ValueError as error: pass\nerror.path = 1",
    )
    for line in planted:
        assert list(foreign(line)), line
    own = ("self.size = 1", "cls.names = ()", "found['a'] = other.name", "size: int = one.size")
    for line in (*own, "try: pass\nexcept ValueError as error: error.path = 1", "error.__cause__ = bug"):
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
