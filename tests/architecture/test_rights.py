"""Each served API declares the rights that its handler asks for, so that a new API is not open to everyone."""

import ast
from pathlib import Path

from ottla.acl import rights
from ottla.brokerlite.handlers import SERVED
from ottla.codec.apis import APIS

HANDLERS = Path(__file__).parents[2] / "brokerlite" / "handlers"
OPEN_TO_EVERYONE = {17, 18, 36}
"""SaslHandshake, ApiVersions, SaslAuthenticate: clients send them before they have a principal."""
NAMES = {id(right): name for name, right in vars(rights).items() if isinstance(right, rights.Right)}


def asked(source: str) -> set[str]:
    """The rights that a handler names, beyond the import."""
    tree = ast.parse(source)
    return {each.id for each in ast.walk(tree) if isinstance(each, ast.Name) and each.id in NAMES.values()}


def uses_access(source: str) -> bool:
    return any(isinstance(each, ast.Attribute) and each.attr == "access" for each in ast.walk(ast.parse(source)))


def shared(source: str) -> set[str]:
    """The modules of `HANDLERS` from which a handler imports."""
    imports = [each.module or "" for each in ast.walk(ast.parse(source)) if isinstance(each, ast.ImportFrom)]
    package = "ottla.brokerlite.handlers."
    return {each.removeprefix(package) for each in imports if each.startswith(package)}


def test_each_handler_asks_for_the_rights_that_its_api_declares() -> None:
    files = {each.stem.replace("_", ""): each for each in HANDLERS.glob("*.py")}
    names = {key: APIS[key].request.__name__.removesuffix("Request") for key in SERVED}
    of_apis = {files[name.lower()].stem for name in names.values()}
    for key, served in SERVED.items():
        name = names[key]
        source = files[name.lower()].read_text()
        for module in shared(source) - of_apis:
            source += (HANDLERS / f"{module}.py").read_text()
        assert asked(source) == {NAMES[id(right)] for right in served.needs}, name
        assert uses_access(source) is bool(served.needs), name


def test_only_requests_before_the_authentication_are_open_to_everyone() -> None:
    assert {key for key, served in SERVED.items() if not served.needs} == OPEN_TO_EVERYONE


def test_a_right_that_is_not_declared_is_seen() -> None:
    assert asked("from x import READ_TOPIC\nif broker.access.allows(a, READ_TOPIC, n): pass") == {"READ_TOPIC"}
    assert not asked("from x import READ_TOPIC")
    assert shared("from a import b\nfrom ottla.brokerlite.handlers.once import c") == {"once"}
    assert uses_access("broker.access.shows(a)") and not uses_access("access(a)")
