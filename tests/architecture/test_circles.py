"""No module imports, directly or indirectly, a module that imports it, not even for types or within a function.

Neither do the locks of modules form a circle, in which two threads would wait for each other.
"""

import ast
import tomllib
from collections.abc import Iterator
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


def loaded(node: ast.AST) -> Iterator[ast.AST]:
    """The imports that run when a module is loaded."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        yield child
        yield from loaded(child)


def named(node: ast.AST, files: dict[str, Path]) -> set[str]:
    """The module that an import loads first; a text counts, too, for `importlib.import_module`."""
    match node:
        case ast.ImportFrom(module=str(module)):
            return {module} & files.keys()
        case ast.Import(names=names):
            return {each.name for each in names} & files.keys()
        case ast.Constant(value=str(text)):
            return {text} & files.keys()
    return set()


def locks(files: dict[str, Path]) -> dict[str, set[str]]:
    """The modules that a thread may have to wait for while it has the lock of each module.

    A module waits for the modules that it imports. It also waits for its package, unless the package is always loaded
    first, because only modules of the package import the module by name.
    """
    graph: dict[str, set[str]] = {module: set() for module in files}
    for module, path in files.items():
        tree = ast.parse(path.read_text())
        for node in loaded(tree):
            graph[module] |= named(node, files) if isinstance(node, ast.Import | ast.ImportFrom) else set()
            if isinstance(node, ast.ImportFrom):
                graph[module] |= {f"{node.module}.{each.name}" for each in node.names} & files.keys()
        for found in set().union(*(named(node, files) for node in ast.walk(tree))):
            package = found.rpartition(".")[0]
            while package in files and not f"{module}.".startswith(f"{package}."):
                graph[found].add(package)
                package = package.rpartition(".")[0]
    return graph


def test_no_module_imports_what_imports_it() -> None:
    graph = imports(modules())
    # The front module names the client's types for type checkers only, and those count.
    assert len(graph) > 450 and "ottla.sdk.client" in graph["ottla"]
    try:
        list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail(" <- ".join(error.args[1]))


def test_threads_that_import_wait_for_each_other_in_one_order() -> None:
    """Otherwise Python gives one of them a half-made module: "cannot import name … from partially initialized module".

    So a package that imports its modules is imported by others as a whole, or loads its names lazily.
    """
    graph = locks(modules())
    assert "ottla.codec" in graph["ottla.codec.records"] and "ottla.codec.records" in graph["ottla.sdk.consumer"]
    try:
        list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail(" <- ".join(error.args[1]))
