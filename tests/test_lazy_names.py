"""Names that packages import when they are first used: each comes from its module, and is looked up once."""

import ast
import inspect
from importlib import import_module
from types import ModuleType

import pytest

import ottla
import ottla.codec
import ottla.sdk
from ottla.sdk import calls

LAZY = [ottla, ottla.codec, ottla.sdk, calls]


def imported_for_types(module: ModuleType) -> dict[str, tuple[str, str]]:
    """The names that a package imports for type checkers, with their modules, and their names there."""
    tree = ast.parse(inspect.getsource(module))
    return {
        alias.asname or alias.name: (each.module, alias.name)
        for node in tree.body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for each in node.body
        if isinstance(each, ast.ImportFrom) and each.module
        for alias in each.names
    }


@pytest.mark.parametrize("module", LAZY, ids=lambda module: module.__name__)
def test_each_name_comes_from_the_module_that_type_checkers_see_and_is_looked_up_once(module: ModuleType) -> None:
    homes = imported_for_types(module)
    assert homes
    for name, (home, own) in homes.items():
        found = getattr(module, name)
        assert found is getattr(import_module(home), own) and vars(module)[name] is found, name
        if not isinstance(found, ModuleType):
            assert module.__getattr__(name) is found
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        module.nonsense  # noqa: B018
    assert len(set(dir(module))) == len(dir(module)), "no name twice"
