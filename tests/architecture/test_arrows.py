"""The import contracts of pyproject.toml work: a planted import breaks the contract that forbids it."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import HUNG
from tools import figure

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
        ("sdk/consume/fetching/__init__.py", "import ottla.sdk.consume.reading.fetcher", "consumer: calls, assignment"),
        ("brokerlite/machines/partitions/__init__.py", "import ottla.brokerlite.machines.topics", "brokerlite: coord"),
        ("spark/reading/__init__.py", "import ottla.spark.streaming.stream_offsets", "spark: sessions and sources"),
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


def test_the_figure_of_the_design_is_drawn_from_the_contracts() -> None:
    assert figure.PAGE.read_text() == figure.page(), "the contracts have changed: make figure"


def test_every_arrow_of_the_figure_is_an_import() -> None:
    for part, drawn in figure.arrows(figure.contracts()).items():
        imported = {
            found
            for path in (ROOT / "src" / "ottla" / part).resolve().rglob("*.py")
            for found in re.findall(r"^ *(?:from|import) ottla\.(\w+)", path.read_text(), re.MULTILINE)
        }
        assert drawn == imported & {*figure.PARTS} - {part}, part


def test_a_contract_that_forbids_more_takes_its_arrow_out_of_the_figure() -> None:
    allowed = figure.arrows(figure.contracts())
    assert re.search("sdk ◄─+ proxy", figure.drawing(allowed))
    stricter = {"type": "forbidden", "source_modules": ["ottla.proxy"], "forbidden_modules": ["ottla.sdk"]}
    allowed = figure.arrows([*figure.contracts(), stricter])
    assert re.search("sdk +proxy", figure.drawing(allowed))


def test_an_arrow_without_a_place_in_the_figure_is_an_error() -> None:
    allowed = figure.arrows(figure.contracts())
    allowed["brokerlite"].add("sdk")
    with pytest.raises(figure.Undrawable, match="from brokerlite to sdk"):
        figure.drawing(allowed)
