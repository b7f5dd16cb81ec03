"""CHANGELOG.md is generated from fragments: each is well formed, and towncrier accepts all of them."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

from tests.patience import HUNG

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "newsfragments"
TOWNCRIER = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["towncrier"]
TYPES = [each["directory"] for each in TOWNCRIER["type"]]
FRAGMENTS = sorted(each for each in FOLDER.iterdir() if each != ROOT / TOWNCRIER["template"])


def test_a_fragment_is_named_after_its_change_and_its_type() -> None:
    assert TYPES == ["feature", "bugfix", "removal", "misc"]
    wrong = [each.name for each in FRAGMENTS if not re.fullmatch(rf"[a-z0-9_-]+\.({'|'.join(TYPES)})\.md", each.name)]
    assert not wrong, f"a fragment is named slug.type.md, and the type is one of {', '.join(TYPES)}"


def test_a_fragment_is_a_paragraph_of_sentences() -> None:
    for each in FRAGMENTS:
        text = each.read_text()
        assert re.fullmatch(r"(`|[A-Z])[^\n]*(\n[^\n]+)*\.\n", text), (
            f"{each.name}: one paragraph, which ends with a stop"
        )
        assert not re.match(r"[#*-]", text), f"{each.name}: towncrier adds headings and bullets"


def test_towncrier_makes_a_changelog_of_them_and_asks_nobody() -> None:
    assert TOWNCRIER["start_string"].strip() in (ROOT / "CHANGELOG.md").read_text()
    command = [sys.executable, "-m", "towncrier", "build", "--draft", "--version", "9.9", "--date", "2030-01-01"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=HUNG)
    assert done.returncode == 0, f"{done.stderr}; is towncrier missing? make setup installs it"
    assert "## 9.9 (2030-01-01)" in done.stdout
    for each in FRAGMENTS:
        assert each.read_text().split(".")[0].split("\n")[0] in done.stdout, each.name
