"""docs/log-lines.md lists every warning and error of the client, the servers and the command line, and no other."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SDK, PAGE = ROOT / "sdk", ROOT / "docs/log-lines.md"
PARTS = (SDK, *(ROOT / each for each in ("brokerlite", "proxy", "src/ottla/acl", "src/ottla/serve", "src/ottla/cli")))
LEVELS = {"warning": "W", "error": "E", "exception": "E"}
BUG = "a bug in the proxy, please report it"
"""The start of a text; the failed part of the proxy follows after a colon."""
CHOSEN = {"say"}
"""Variables that hold one of a logger's methods, at times `warning`."""


def texts(node: ast.expr, named: dict[str, ast.expr]) -> Iterator[str]:
    """The possible texts of a line's first argument: a constant, or each of several that a name stands for."""
    match node:
        case ast.Constant(value=str(text)):
            yield text.split(": ")[0] if text.startswith(BUG) else text
        case ast.IfExp(body=one, orelse=other):
            yield from texts(one, named)
            yield from texts(other, named)
        case ast.JoinedStr(values=parts):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "%s" for part in parts)
        case ast.Name(id=name) if name in named:
            yield from texts(named[name], named)
        case ast.Subscript(value=value):
            yield from texts(value, named)
        case ast.Tuple(elts=several) | ast.Dict(values=several):
            for each in several:
                yield from texts(each, named)
        case _:
            raise AssertionError(f"the logged message is not a constant text: {ast.unparse(node)}")


def logged() -> set[tuple[str, str]]:
    """(text, level) of all warnings and errors in the source."""
    found = set()
    for path in (path for part in PARTS for path in part.rglob("*.py")):
        if path.is_relative_to(SDK / "sync"):  # generated from the others
            continue
        tree = ast.parse(path.read_text())
        made: defaultdict[str, list[ast.expr]] = defaultdict(list)
        for each in ast.walk(tree):
            if isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Name):
                made[each.targets[0].id].append(each.value)
        named = {name: several[-1] for name, several in made.items()}
        for call in ast.walk(tree):
            match call:
                case ast.Call(
                    func=ast.Attribute(value=ast.Name(id="log"), attr=level),
                    args=[ast.Constant(value="%s"), ast.Name(id=name)],
                ):  # the text was assigned earlier, or the line has the count of earlier ones
                    found |= {(each, LEVELS[level]) for line in made[name] for each in texts(line, named)}
                case ast.Call(func=ast.Attribute(value=ast.Name(id="log"), attr=level), args=[text, *_]):
                    if level in LEVELS:
                        found |= {(each, LEVELS[level]) for each in texts(text, named)}
                case ast.Call(func=ast.Name(id=name), args=[text, *_]) if name in CHOSEN:
                    found |= {(each, "W") for each in texts(text, named)}
    return found


def test_the_page_has_every_line_and_no_other() -> None:
    page = PAGE.read_text()
    rows = re.findall(r"^\| `(.+?)` \| ([EW]) \| .+ \|$", page, re.MULTILINE)
    assert len(rows) == len(set(rows)) == page.count("\n| `")
    assert set(rows) == logged()


def test_facts_have_one_name_each() -> None:
    """A line about one partition has its topic, too; and an id says whose it is."""
    for path in SDK.rglob("*.py"):
        for each in ast.walk(ast.parse(path.read_text())):
            if isinstance(each, ast.Dict):
                names = {key.value for key in each.keys if isinstance(key, ast.Constant)}
                assert "id" not in names, f"{path}:{each.lineno}"
                assert "partition" not in names or "topic" in names, f"{path}:{each.lineno}"
