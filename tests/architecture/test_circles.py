"""No module imports, directly or indirectly, a module that imports it, not even for types or within a function."""

import ast
import tomllib
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SETUPTOOLS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]


def modules() -> dict[str, Path]:
    """The modules of all packages that are installed, and their files."""
    found = {}
    for package in SETUPTOOLS["packages"]:
        part = max((each for each in SETUPTOOLS["package-dir"] if f"{package}.".startswith(f"{each}.")), key=len)
        folder = ROOT.joinpath(SETUPTOOLS["package-dir"][part], *package.removeprefix(part).split(".")[1:])
        for path in folder.glob("*.py"):
            found[package if path.stem == "__init__" else f"{package}.{path.stem}"] = path
    return found


def imports(files: dict[str, Path]) -> dict[str, set[str]]:
    """The modules that each module imports."""
    graph: dict[str, set[str]] = {}
    for module, path in files.items():
        found = graph[module] = set()
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found |= {each.name for each in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                names = {f"{node.module}.{each.name}" for each in node.names}
                found |= {name if name in files else node.module for name in names}
        found &= files.keys()
    return graph


def test_no_module_imports_what_imports_it() -> None:
    graph = imports(modules())
    # The front module names the client's types for type checkers only, and those count.
    assert len(graph) > 450 and "ottla.sdk.client" in graph["ottla"]
    try:
        list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail(" <- ".join(error.args[1]))
