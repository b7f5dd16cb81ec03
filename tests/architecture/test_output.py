"""A command prints through `ottla.cli.stdio`, or without a loop through `ottla.cli.escapes`.

Another print blocks the loop while its pipe is full, and lets names that clients chose control the terminal.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

CLI = Path(__file__).parents[2] / "src" / "ottla" / "cli"
ALLOWED = {
    "demo/children.py": "the parent reads all that a child reports",
    "demo/tables.py": "the demo is for people at a terminal",
    "escapes.py": "`tell` is for commands without a loop",
    "help.py": "the text is a table of the program's own words",
    "tables.py": "rich prints into a text, which `stdio` writes",
}
"""``file`` -> the reason for the exception."""
PRINTS = {"echo", "secho", "print", "print_json", "write", "writelines"}
WRITERS = ("typer", "click", "console", "Console()", "sys.stdout", "sys.stderr")


def prints(source: str) -> Iterator[int]:
    """The lines of the calls that print."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Call(func=ast.Name(id="print")):
                yield node.lineno
            case ast.Call(func=ast.Attribute(value=owner, attr=name)) if name in PRINTS:
                if ast.unparse(owner).startswith(WRITERS):
                    yield node.lineno


def test_the_rule_sees_every_kind_of_print() -> None:
    planted = (
        "print(1)",
        "typer.echo('a', err=True)",
        "Console().print(table)",
        "console.print('a')",
        "sys.stdout.write('a')",
        "sys.stderr.buffer.write(b'a')",
    )
    for line in planted:
        assert list(prints(f"async def command() -> None:\n    {line}")) == [2], line
    for line in ("await stdio.say('a')", "await stdio.write(b'a')", "output.write(b'a')", "_print(rows)"):
        assert not list(prints(f"async def command() -> None:\n    {line}")), line


def test_commands_print_through_the_module_that_does_not_block_the_loop() -> None:
    paths = list(CLI.rglob("*.py"))
    assert len(paths) > 25
    found = [(path.relative_to(CLI).as_posix(), line) for path in paths for line in prints(path.read_text())]
    unexpected = [f"{name}, line {line}" for name, line in found if name not in ALLOWED]
    advice = "use `await stdio.say(…)`, or `tell(…)` without a loop: both escape control characters"
    assert not unexpected, "\n".join((advice, *unexpected))
    assert {name for name, _ in found} == ALLOWED.keys(), "an exception is no longer needed"
