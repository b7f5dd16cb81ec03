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


def test_each_handler_asks_for_the_rights_that_its_api_declares() -> None:
    files = {each.stem.replace("_", ""): each for each in HANDLERS.glob("*.py")}
    for key, served in SERVED.items():
        name = APIS[key].request.__name__.removesuffix("Request")
        source = files[name.lower()].read_text()
        assert asked(source) == {NAMES[id(right)] for right in served.needs}, name
        assert uses_access(source) is bool(served.needs), name


def test_only_requests_before_the_authentication_are_open_to_everyone() -> None:
    assert {key for key, served in SERVED.items() if not served.needs} == OPEN_TO_EVERYONE


def test_a_right_that_is_not_declared_is_seen() -> None:
    assert asked("from x import READ_TOPIC\nif broker.access.allows(a, READ_TOPIC, n): pass") == {"READ_TOPIC"}
    assert not asked("from x import READ_TOPIC")
    assert uses_access("broker.access.shows(a)") and not uses_access("access(a)")
