"""The map of the project and those of its packages name only files and types that exist; renames update them."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/map.md").read_text()


def test_every_file_of_the_map_exists() -> None:
    named = re.findall(r"`([\w/]+/(?:\w+\.(?:pyx?|md|json))?)`", PAGE)
    assert len(named) > 150
    gone = sorted({each for each in named if not (ROOT / each).exists()})
    assert not gone, f"docs/map.md names {', '.join(gone)}"


def test_every_type_of_the_map_is_in_its_folder() -> None:
    rows = re.findall(r"^\| `([\w/]+/)` \| (.+) \|$", PAGE.partition("## The key types")[2], re.MULTILINE)
    assert len(rows) > 15
    for folder, text in rows:
        source = "\n".join(each.read_text() for each in (ROOT / folder).glob("*.py"))
        for name in re.findall(r"`(\w+)`", text):
            assert re.search(rf"^class {name}\b", source, re.MULTILINE), f"docs/map.md: no {name} in {folder}"


def test_every_module_of_a_packages_own_map_exists() -> None:
    gone, found = [], 0
    for package in (
        each
        for part in ("codec", "sdk", "proxy", "brokerlite", "spark", "src/ottla")
        for each in (ROOT / part).rglob("__init__.py")
    ):
        text = ast.get_docstring(ast.parse(package.read_text()), clean=False) or ""
        named = {
            *re.findall(r"(?<![\w/*{])([a-z_]\w*)\.py\b", text),
            *re.findall(r"^([a-z_]+)/?  +\S", text, re.MULTILINE),
        }
        there = {each.stem for each in package.parent.rglob("*")}
        found += len(named)
        gone += [f"{package.relative_to(ROOT)}: {each}" for each in sorted(named - there)]
    assert found > 100
    assert not gone, f"their modules have other names: {', '.join(gone)}"
