"""The reference matches the docstrings, and covers every public name."""

import re
from dataclasses import fields

import ottla
import ottla.codec
from ottla.sdk.options import ClientOptions
from tools import reference


def test_the_reference_is_current() -> None:
    written = {path.name: path.read_text() for path in reference.FOLDER.glob("*")}
    made = reference.pages()
    stale = sorted(name for name in written.keys() | made.keys() if written.get(name) != made.get(name))
    assert not stale, "docstrings have changed: make reference"


def test_every_name_of_the_front_module_is_in_the_reference() -> None:
    named = set(re.findall(r"^## (\w+)", "\n".join(reference.pages().values()), re.MULTILINE))
    assert set(ottla.__all__) <= named
    assert set(ottla.codec.__all__) - {"engine"} <= named


def test_every_option_of_connect_is_in_the_reference() -> None:
    text = reference.pages()["client.md"]
    signature, explained = text.partition("def connect(")[2].split("## Client")[0].split("```", 1)
    for option in fields(ClientOptions):
        assert f"    {option.name}: " in signature
        assert f"`{option.name}`" in explained


def test_the_fixture_and_every_page_are_listed() -> None:
    listed = reference.pages()["README.md"]
    assert all(f"({name}.md)" in listed for name in reference.PAGES)
