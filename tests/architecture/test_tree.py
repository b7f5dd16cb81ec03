"""Promises of the tree about itself: its packages, their imports, and texts that no file may contain."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import ottla
from tests.patience import HUNG

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SETUPTOOLS = PROJECT["tool"]["setuptools"]


def test_the_packages_of_pyproject_are_those_of_the_tree() -> None:
    found = set()
    for package, folder in SETUPTOOLS["package-dir"].items():
        for init in (ROOT / folder).rglob("__init__.py"):
            below = init.parent.relative_to(ROOT / folder).parts
            if not (ROOT / folder).joinpath(*below[:1]).is_symlink() or not below:
                found.add(".".join((package, *below)))
    assert found == set(SETUPTOOLS["packages"])


def test_the_version_stands_in_one_place() -> None:
    named = [
        each.relative_to(ROOT).as_posix()
        for folder in SETUPTOOLS["package-dir"].values()
        for each in (ROOT / folder).rglob("*.py")
        if f'"{ottla.__version__}"' in each.read_text()
    ]
    assert "version" not in PROJECT["project"] and set(named) == {"src/ottla/version.py"}


def test_every_part_is_linked_into_src_for_checkers_and_editors() -> None:
    for package, folder in SETUPTOOLS["package-dir"].items():
        part = package.removeprefix("ottla.")
        if package != part:
            assert (ROOT / "src" / "ottla" / part).resolve() == ROOT / folder


HEAVY = ("trio", "zeroconf", "typer", "rich", "pyspark", "pyarrow", "confluent_kafka")
"""Modules that a part must not load before it needs them: they cost time or belong to an optional extra."""


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("ottla", {*HEAVY, "construct", "ottla.codec", "ottla.sdk", "ottla.proxy", "ottla.brokerlite", "ottla.spark"}),
        ("ottla.errors", {*HEAVY, "construct", "ottla.codec", "ottla.sdk"}),
        ("ottla.codec", {*HEAVY, "construct", "ottla.sdk", "ottla.proxy", "ottla.brokerlite", "ottla.spark"}),
        ("ottla.sdk.core", {*HEAVY, "ottla.proxy", "ottla.brokerlite", "ottla.spark"}),
        ("ottla.sdk", {*HEAVY} - {"trio"} | {"ottla.proxy", "ottla.brokerlite", "ottla.spark"}),
        ("ottla.sync", {*HEAVY, "asyncio", "ottla.proxy", "ottla.brokerlite", "ottla.spark"}),
        ("ottla.brokerlite.machines", {*HEAVY, "socket", "ottla.sdk", "ottla.proxy", "ottla.spark"}),
        ("ottla.brokerlite", {*HEAVY} - {"trio"} | {"ottla.sdk", "ottla.proxy", "ottla.spark"}),
        (
            "ottla.brokerlite.serve",
            {*HEAVY} - {"trio"} | {"ottla.brokerlite.handlers.fetch", "ottla.codec.apis.produce"},
        ),
        ("ottla.proxy", {*HEAVY} - {"trio"} | {"ottla.brokerlite", "ottla.spark"}),
        ("ottla.spark", {*HEAVY, "construct"} - {"pyspark", "pyarrow"} | {"ottla.proxy", "ottla.brokerlite"}),
        ("pyspark_ottla", {*HEAVY} - {"pyspark", "pyarrow"} | {"ottla.proxy", "ottla.brokerlite"}),
        ("ottla.testing", {*HEAVY, "pytest", "construct", "ottla.sdk", "ottla.brokerlite"}),
        ("ottla.pytest_plugin", {*HEAVY, "construct", "ottla.sdk", "ottla.brokerlite"}),  # every pytest run loads it
        ("ottla.cli", {"zeroconf", "pyspark", "pyarrow", "confluent_kafka", "ottla.spark"}),
    ],
)
def test_a_part_does_not_load_what_it_does_not_need(module: str, absent: set[str]) -> None:
    code = f"import {module}, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=HUNG)
    assert absent.isdisjoint(done.stdout.split())


READS_ONLY = {
    "construct", "importlib.metadata", "pydantic", "scramp", "ottla.sdk.calls.groups", "ottla.sdk.calls.topics",
    "ottla.sdk.calls.transactions", "ottla.sdk.group.classic_member", "ottla.sdk.produce.core",
    "ottla.sdk.share.core", "ottla.sdk.transaction.core", "ottla.sdk.transaction.transform",
}  # fmt: skip
"""What a client that only reads need not import."""
COUNTED = """
import dataclasses, sys

real, generated = dataclasses.dataclass, []

def dataclass(cls=None, /, **options):
    def decorate(cls):
        compiled = options.get("init", True)  # otherwise only its fields are described
        generated.extend([cls.__qualname__] if compiled and cls.__module__.startswith("ottla.") else [])
        return real(**options)(cls)
    return decorate if cls is None else decorate(cls)

dataclasses.dataclass = dataclass
import {module}
print(len(generated), *sys.modules)
"""


@pytest.mark.parametrize(
    ("module", "absent", "modules", "classes"),
    [
        ("ottla.codec.records", {*HEAVY, "construct", "importlib.metadata", "pydantic"}, 21, 2),
        ("ottla.sdk.client", {*HEAVY, *READS_ONLY, "asyncio"}, 157, 2),
        ("ottla.aio", {*HEAVY, *READS_ONLY}, 162, 2),
        ("ottla.sync", {*HEAVY, *READS_ONLY, "asyncio"}, 171, 2),
        ("ottla.sdk.drivers.blocking", {*HEAVY, *READS_ONLY, "asyncio"}, 106, 2),
        ("ottla.cli.consume", {"trio", "rich", "pydantic", "construct", "ottla.sdk", "ottla.codec"}, 17, 2),
        ("ottla.cli.help", {*HEAVY, "ottla.errors"}, 6, 0),
    ],
)
def test_an_entry_imports_few_modules_and_generates_few_classes(
    module: str, absent: set[str], modules: int, classes: int
) -> None:
    """The bounds are a little above what there is today: a program's first record waits for all of it."""
    code = COUNTED.format(module=module)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=HUNG)
    count, *loaded = done.stdout.split()
    assert absent.isdisjoint(loaded)
    assert sum(each.partition(".")[0] == "ottla" for each in loaded) <= modules
    assert int(count) <= classes


@pytest.mark.parametrize("module", sorted(ottla._MODULES))
def test_import_ottla_is_enough_to_use_a_module_of_its(module: str) -> None:
    code = f"import ottla; print(ottla.{module}.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=HUNG)
    assert done.stdout == f"ottla.{module}\n", done.stderr


FORBIDDEN = re.compile(
    r"(?<![\w.])/(work|root|home|Users)/"  # paths of one machine
    r"|(?<![\w.])/tmp/venv"
    r"|https?://[\w.-]*(pypi|pythonhosted|maven|npmjs|golang|crates|debian)\."  # the machine chooses registries
)


def test_no_file_names_a_machine_or_a_registry() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
    guilty = []
    for name in filter(None, listed.decode().split("\0")):
        path = ROOT / name
        if path == Path(__file__) or not path.is_file() or path.is_symlink():
            continue
        for number, line in enumerate(path.read_bytes().decode(errors="replace").splitlines(), 1):
            if FORBIDDEN.search(line):
                guilty.append(f"{name}:{number}: {line.strip()[:120]}")
    assert not guilty
