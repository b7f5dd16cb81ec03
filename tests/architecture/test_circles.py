"""No module imports, directly or indirectly, a module that imports it, not even for types or within a function."""

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def imports(package: str) -> dict[str, set[str]]:
    """The modules of ``ottla.<package>``, each with its imports from the package."""
    files = {
        ".".join(("ottla", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__"): path
        for path in (ROOT / package).rglob("*.py")
    }
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


@pytest.mark.parametrize("package", ["codec", "sdk", "brokerlite", "proxy"])
def test_no_module_imports_what_imports_it(package: str) -> None:
    graph = imports(package)
    assert len(graph) > 10
    try:
        list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail(" <- ".join(error.args[1]))
