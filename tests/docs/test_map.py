"""docs/map.md names only files and types that exist: a change that moves or renames one must update the page."""

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
