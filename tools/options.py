"""Write sdk/client_parts.py, the calls of a client that take options, from the options' declarations: ``make faces``.

Rules:
- `Client._producer` and its like take dataclasses of options. The generated call takes an argument for each of their
  fields, and passes instances. It has the method's docstring, with a line for each option.
- The string after a field explains all fields since the string before.
- If several dataclasses have an option of the same name, the first one declares it, and all get the value.
- Sources are parsed and not run, so types and defaults are in the words of the declaration.
"""

import ast
import builtins
import inspect
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

from tools.faces import ROOT, WIDTH, formatted

PATH = ROOT / "sdk/client_parts.py"
CALLS = ("producer", "consumer", "share_consumer", "transform")
LEFT_OUT = {
    "transform": {
        "ConsumerOptions": ("assign", "auto_commit"),
        "ConsumerHooks": ("interceptors",),
        "ProducerOptions": ("acks", "idempotent"),
    },
}
"""Options that a call does not have: for a transform, only one of their values makes sense."""

HEAD = '''# Generated, do not edit: `make faces` writes this file from the declarations of the options.
"""The calls of a client that create its producers, consumers and transforms, with an argument for each option."""

{imports}

class ClientParts(AsyncBlock):
    """The calls of a client that take many options. `Client` carries them out."""
'''
INDENT = " " * 8
"""The indentation of a method's docstring."""
NAMES = 88
"""The most characters for names of options in a line that explains them."""
ALWAYS = (
    "from ottla.sdk.blocks import AsyncBlock",
    "from ottla.sdk.signatures import advising",
)


class Undocumented(Exception):
    """An option has no string after it."""


@dataclass(frozen=True, slots=True)
class Module:
    """A parsed file of `sdk`, by its name in imports."""

    name: str
    tree: ast.Module
    imported: dict[str, str]
    """The modules from which names are imported."""

    def home(self, name: str) -> str:
        """The module of a name that this one uses."""
        return self.imported.get(name, self.name)


@dataclass(frozen=True, slots=True)
class Option:
    name: str
    kind: str
    default: str | None
    """The source of the default; ``None``: the option is required."""
    text: str
    """Explains the option; several options may share a text."""

    @property
    def argument(self) -> str:
        return f"{self.name}: {self.kind}" + ("" if self.default is None else f" = {self.default}")


def module(name: str) -> Module:
    tree = ast.parse((ROOT / f"{name.removeprefix('ottla.').replace('.', '/')}.py").read_text())
    imported = {
        each.asname or each.name: node.module
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module
        for each in node.names
    }
    return Module(name, tree, imported)


def declared(home: str, name: str) -> tuple[Option, ...]:
    """The options of a dataclass, in order.

    Raises:
        Undocumented: an option has no string after it.
    """
    [node] = [each for each in module(home).tree.body if isinstance(each, ast.ClassDef) and each.name == name]
    options: list[Option] = []
    waiting: list[ast.AnnAssign] = []
    for each in node.body:
        if isinstance(each, ast.AnnAssign):
            waiting.append(each)
        elif waiting and isinstance(each, ast.Expr):
            text = " ".join(ast.literal_eval(each.value).split())
            text = text if re.match("[A-Z]{2}", text) else text[0].lower() + text[1:]
            for one in waiting:
                options.append(Option(ast.unparse(one.target), ast.unparse(one.annotation), default(one), text))
            waiting = []
        elif waiting:
            break
    if waiting:
        raise Undocumented(f"{name}.{ast.unparse(waiting[0].target)} has no string after it that explains it")
    return tuple(options)


def default(field: ast.AnnAssign) -> str | None:
    """The source of a field's default, which may be the first argument of `ottla.sdk.options.option`."""
    value = field.value
    if isinstance(value, ast.Call) and ast.unparse(value.func) == "option":
        value = value.args[0]
    return None if value is None else ast.unparse(value)


class Call:
    """A method of the client that takes dataclasses, such as `Client._producer`."""

    def __init__(self, client: Module, name: str) -> None:
        [of] = [each for each in client.tree.body if isinstance(each, ast.ClassDef) and each.name == "Client"]
        [self.node] = [each for each in of.body if isinstance(each, ast.FunctionDef) and each.name == f"_{name}"]
        self.name, self.client = name, client
        self.topics = False
        self.classes: list[tuple[str, tuple[Option, ...]]] = []
        for each in self.node.args.args[1:]:
            assert each.annotation is not None
            kind = ast.unparse(each.annotation).partition("[")[0]
            if each.arg == "topics":
                self.topics = True
            else:
                left_out = LEFT_OUT.get(name, {}).get(kind, ())
                options = declared(client.home(kind), kind)
                self.classes.append((kind, tuple(each for each in options if each.name not in left_out)))

    def options(self) -> dict[str, tuple[str, Option]]:
        """Each option, with its class."""
        found: dict[str, tuple[str, Option]] = {}
        for kind, options in self.classes:
            for each in options:
                found.setdefault(each.name, (kind, each))
        return found

    def source(self, others: "list[Call]") -> str:
        """The methods that the generated class has for this call; ``others`` explain the options that they share."""
        declared = [each.argument for _, each in self.options().values()]
        arguments = ["self", "*topics: str" if self.topics else "*", *declared]
        returned = ast.unparse(self.node.returns) if self.node.returns else "None"
        given = ["topics"] if self.topics else []
        given += [
            f"{kind}({', '.join(f'{each.name}={each.name}' for each in options)})" for kind, options in self.classes
        ]
        return "\n".join(
            [
                "    @advising",
                f"    def {self.name}({', '.join(arguments)}) -> {returned}:",
                textwrap.indent(f'"""{self.docstring(others)}"""', INDENT),
                f"        return self.{self.node.name}({', '.join(given)})",
                "",
                f"    def {self.node.name}({ast.unparse(self.node.args)}) -> {returned}:",
                "        raise NotImplementedError",
                "",
            ]
        )

    def docstring(self, others: "list[Call]") -> str:
        text = inspect.cleandoc(ast.get_docstring(self.node) or "")
        about, raises, errors = text.partition("\n\nRaises:\n")
        if "\n\nArgs:\n" not in about:
            about += "\n\nArgs:"
        return "\n".join([about, *self.explained(others)]) + raises + errors + "\n"

    def explained(self, others: "list[Call]") -> Iterator[str]:
        """Yield the lines about options; a line refers to another call if that has the options, too."""
        explaining = {kind: each.name for each in others for kind, _ in each.classes}
        texts: dict[str, list[str]] = {}
        for kind, each in self.options().values():
            text = f"as in `{explaining[kind]}`." if kind in explaining else each.text
            texts.setdefault(text, []).append(each.name)
        for text, names in texts.items():
            for some in textwrap.wrap(", ".join(names), NAMES):  # the names of an item stand in one line
                yield textwrap.fill(
                    f"{some.removesuffix(',')}: {text}",
                    WIDTH - len(INDENT),
                    initial_indent=" " * 4,
                    subsequent_indent=" " * 8,
                    break_long_words=False,
                    break_on_hyphens=False,
                )

    def names(self) -> Iterator[tuple[str, str]]:
        """The modules and names to import."""
        for kind, options in self.classes:
            home = module(self.client.home(kind))
            yield home.name, kind
            sources = [text for each in options for text in (each.kind, each.default) if text is not None]
            yield from ((home.home(name), name) for source in sources for name in used(source))
        signature = [ast.unparse(each.annotation) for each in self.node.args.args if each.annotation is not None]
        signature += [ast.unparse(self.node.returns)] if self.node.returns is not None else []
        yield from ((self.client.home(name), name) for source in signature for name in used(source))


def used(source: str) -> Iterator[str]:
    """The names in an expression, except Python's own."""
    for each in ast.walk(ast.parse(source)):
        if isinstance(each, ast.Name) and not hasattr(builtins, each.id):
            yield each.id


def written() -> str:
    """The contents of sdk/client_parts.py."""
    client = module("ottla.sdk.client")
    calls = [Call(client, name) for name in CALLS]
    imports = {f"from {home} import {name}" for each in calls for home, name in each.names()}
    body = "\n".join(each.source(calls[:number]) for number, each in enumerate(calls))
    return formatted(HEAD.format(imports="\n".join([*ALWAYS, *sorted(imports)])) + "\n" + body)


def main() -> None:
    PATH.write_text(written())


if __name__ == "__main__":
    main()
