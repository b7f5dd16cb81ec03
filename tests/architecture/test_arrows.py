"""The import contracts of pyproject.toml work: a planted import breaks the contract that forbids it."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import HUNG

ROOT = Path(__file__).parents[2]
LINT_IMPORTS = Path(sys.executable).parent / "lint-imports"


def lint_imports(tree: Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(tree / "src")}
    command = [str(LINT_IMPORTS), "--no-cache", "--config", str(tree / "pyproject.toml")]
    return subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, timeout=HUNG)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tree = tmp_path_factory.mktemp("tree")
    for part in ("codec", "sdk", "proxy", "brokerlite", "spark", "src"):
        shutil.copytree(ROOT / part, tree / part, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tree)
    return tree


def test_the_tree_keeps_its_contracts(tree: Path) -> None:
    linted = lint_imports(tree)
    assert linted.returncode == 0, linted.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "planted", "contract"),
    [
        ("src/ottla/errors.py", "import ottla.codec", "errors are the lowest"),
        ("codec/records.py", "import ottla.sdk", "codec imports nothing of ours"),
        ("codec/wire.py", "import socket", "codec imports nothing of ours"),
        ("sdk/__init__.py", "import ottla.serve", "sdk imports codec"),
        ("sdk/__init__.py", "import ottla.serve", "only the two servers import serve"),
        ("proxy/__init__.py", "import ottla.brokerlite", "proxy imports sdk, codec and serve"),
        ("brokerlite/__init__.py", "import ottla.sdk.core", "brokerlite imports codec and serve"),
        ("spark/__init__.py", "import ottla.proxy", "spark imports sdk and codec"),
        ("src/ottla/serve/listener.py", "import ottla.brokerlite", "serve imports codec"),
        ("src/ottla/testing.py", "import ottla.cli", "nothing imports the command line"),
        ("sdk/produce/__init__.py", "def f() -> None:\n    import time", "machines import no trio, clock"),
        ("brokerlite/machines/__init__.py", "import random", "machines import no trio, clock"),
        ("brokerlite/machines/__init__.py", "import os", "machines import no chance"),
        ("proxy/__init__.py", "import trio", "trio is imported by the modules of this list only"),
        ("brokerlite/storage/__init__.py", "import ottla.serve", "these modules never meet trio"),
    ],
)
def test_a_planted_import_breaks_its_contract(tree: Path, where: str, planted: str, contract: str) -> None:
    module = tree / where
    text = module.read_text()
    module.write_text(f"{text}\n{planted}\n")
    linted = lint_imports(tree)
    module.write_text(text)
    assert linted.returncode == 1
    broken = [line for line in linted.stdout.splitlines() if " BROKEN" in line]
    assert any(line.startswith(contract) for line in broken), linted.stdout


DRAWN = {"spark": {"sdk"}, "proxy": {"sdk", "codec"}, "sdk": {"codec"}, "brokerlite": {"codec"}, "codec": set[str]()}
"""The arrows of the figure in docs/design.md, except those from the command line."""


def test_the_figure_of_the_design_draws_every_arrow() -> None:
    parts = next(
        line for line in (ROOT / "docs/design.md").read_text().splitlines() if line.startswith("          spark")
    )
    assert re.search(r"spark ─+► +sdk +◄─+ proxy +brokerlite", parts)
    for part, drawn in DRAWN.items():
        imported = {
            found
            for path in (ROOT / part).rglob("*.py")
            for found in re.findall(r"^ *(?:from|import) ottla\.(\w+)", path.read_text(), re.MULTILINE)
        }
        reached = drawn | {each for through in drawn for each in DRAWN[through]} | {part}
        assert imported & DRAWN.keys() <= reached, part
        assert drawn <= imported, f"{part} does not import every part to which the figure has an arrow"
