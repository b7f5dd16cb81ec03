"""docs/glossary.md gives each thing one word: no class name has two meanings, and no name has a word not to be used."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/glossary.md").read_text()
PARTS = ("codec", "sdk", "proxy", "brokerlite", "spark", "src/ottla")
KAFKAS_OR_GENERATED = ("codec/apis/", "codec/stored/", "sdk/sync/")
WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def rows(heading: str) -> Iterator[list[str]]:
    """The cells of the tables below a heading, without the tables' heads."""
    section = PAGE.partition(f"\n{heading}\n")[2].partition("\n## ")[0]
    for line in re.findall(r"^\|( (?!term |name ).+)\|$", section, re.MULTILINE):
        yield [each.strip() for each in line.split("|")]


def headings() -> list[str]:
    return re.findall(r"^## .+$", PAGE, re.MULTILINE)


def words_not_to_use() -> dict[str, str]:
    """The word -> the term to use."""
    found = {}
    for heading in headings():
        for term, *_, unused in rows(heading) if heading != "## The same name twice" else ():
            found.update({each.strip(): term for each in unused.split(",") if each.strip()})
    return found


def exceptions() -> dict[str, set[str]]:
    """The class names that several modules may define, and the modules."""
    return {name.strip("`"): set(re.findall(r"`(.+?)`", paths)) for name, paths, _ in rows("## The same name twice")}


@cache
def trees() -> dict[str, ast.Module]:
    paths = [each for part in PARTS for each in (ROOT / part).rglob("*.py")]
    return {each.relative_to(ROOT).as_posix(): ast.parse(each.read_text()) for each in paths}


def identifiers(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """The names of classes and functions, and the attributes and arguments that a module defines."""
    for each in ast.walk(tree):
        match each:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name, each.lineno
            case ast.arg(arg=name):
                yield name, each.lineno
            case ast.Attribute(attr=name, ctx=ast.Store()) | ast.Name(id=name, ctx=ast.Store()):
                yield name, each.lineno


def test_every_term_has_one_row() -> None:
    terms = [term for heading in headings() if heading != "## The same name twice" for term, *_ in rows(heading)]
    assert len(terms) > 50 and len(terms) == len(set(terms))
    assert len(words_not_to_use()) > 15


def test_no_two_modules_define_the_same_class_name() -> None:
    defined: dict[str, set[str]] = defaultdict(set)
    for path, tree in trees().items():
        if not path.startswith(KAFKAS_OR_GENERATED):
            for each in tree.body:
                if isinstance(each, ast.ClassDef):
                    defined[each.name].add(path)
    twice = {name: paths for name, paths in defined.items() if len(paths) > 1}
    allowed = exceptions()
    assert len(allowed) < 10
    new = {name: sorted(paths) for name, paths in twice.items() if allowed.get(name) != paths}
    assert not new, f"give each a name of its own: {new}"
    assert not allowed.keys() - twice, "docs/glossary.md lists exceptions that are none any more"


def test_no_name_has_a_word_that_is_not_to_be_used() -> None:
    unused = words_not_to_use()
    guilty = [
        f"{path}:{line}: {name}: not {word!r}, but {unused[word]!r}"
        for path, tree in trees().items()
        for name, line in identifiers(tree)
        for word in map(str.lower, WORD.findall(name))
        if word in unused
    ]
    assert not guilty, "\n".join(guilty)
