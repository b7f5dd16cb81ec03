"""Write codec/flattened.py, the programs of all messages of the codec, from their construct trees: ``make flattened``.

Rules:
- A text has the fields of a struct in the order of their bytes, then its tagged fields in the order of their tags. Each
  field has its name and the words of its op. In an array, the words of its elements follow.
- Everything else that a program needs is in the declaration of the struct: classes, tags, defaults, absent fields.
- Versions with the same text share it.

`tests/codec/test_flattened.py` compares the file with the output of this one.
"""

import importlib
import pkgutil
import subprocess
from collections.abc import Iterator
from typing import Any

import ottla.codec
from ottla.codec import flatten, trees, wire
from ottla.codec.ops import Code, Op, Program
from tools.faces import ROOT, RUFF

PATH = ROOT / "codec/flattened.py"
HEAD = '''# Generated, do not edit: `make flattened` writes this file from the construct trees of the messages.
"""The programs of the codec's messages as texts, which `ottla.codec.program` reads when a message is first used."""

'''
LENGTHS = {
    Code.STRING: Code.INT16, Code.BYTES: Code.INT32, Code.WINDOW: Code.INT32, Code.ARRAY: Code.INT32,
    Code.STRUCT: Code.INT8,
}  # fmt: skip
"""The usual coding of lengths. Another one has a word in front."""
OTHER_LENGTHS = {Code.UNSIGNED: "compact_", Code.ZIGZAG32: "var_", Code.INT16: "short_"}


def modules() -> Iterator[Any]:
    """The modules of the codec, except the engines."""
    for found in pkgutil.walk_packages(ottla.codec.__path__, "ottla.codec."):
        if not found.name.rpartition(".")[2].startswith("_"):
            yield importlib.import_module(found.name)


def messages() -> Iterator[type[Any]]:
    """The message classes of the codec."""
    for module in modules():
        for cls in vars(module).values():
            if "__api__" in getattr(cls, "__dict__", ()) and cls.__module__ == module.__name__:
                yield cls


def structs(node: Any) -> Iterator[trees.Structure]:
    """The structs in a tree."""
    if isinstance(node, trees.Sequence):
        yield from structs(node.item)
    if isinstance(node, trees.Structure):
        yield node
        for each in [*(each for _, each in node.members), *(each.node for each in node.tagged or ())]:
            yield from structs(each)


def word_of(op: Op) -> str:
    """The word for an op, without its elements or fields."""
    usual = LENGTHS.get(op.code, op.length)
    length = "" if op.length == usual else OTHER_LENGTHS[op.length]
    return f"{length}{op.code.name.lower()}{'?' if op.null else ''}"


class Texts:
    """The texts of all programs, and the words in them."""

    def __init__(self) -> None:
        self.words: dict[str, tuple[int, bool, int, int, int]] = {}
        self.versions: dict[str, dict[str, dict[tuple[str, bool], list[int]]]] = {}
        """Module -> class -> text, and whether the version is flexible -> versions."""

    def add(self, cls: type[Any], version: int) -> None:
        """Add a message, and the structs in it."""
        hashable: Any = cls
        for each in structs(trees.message_tree(hashable, version)):
            flexible = each.tagged is not None
            text = self.text(flatten.struct(each.cls, version, flexible))
            of_class = self.versions.setdefault(each.cls.__module__, {}).setdefault(each.cls.__name__, {})
            of_text = of_class.setdefault((text, flexible), [])
            if version not in of_text:
                of_text.append(version)

    def text(self, program: Program) -> str:
        tagged = [(each.name, each.op) for each in program.tagged or ()]
        return ", ".join(" ".join((name, *self.op(op))) for name, op in (*program.fields, *tagged))

    def op(self, op: Op) -> Iterator[str]:
        word = word_of(op)
        least = op.least if op.code != Code.STRUCT or op.null else 0  # a struct takes the sum of its fields
        its = int(op.code), op.null, least, int(op.length), op.longest
        if self.words.setdefault(word, its) != its:
            raise ValueError(f"{word} would mean {its} and {self.words[word]}: give one of them another word")
        yield word
        if op.item is not None:
            yield from self.op(op.item)


def ranges(versions: list[int], flexible: bool) -> Iterator[str]:
    """``"3-7"`` or ``"3"`` for versions that follow each other."""
    first = previous = min(versions)
    for version in [*sorted(versions)[1:], None]:
        if version != previous + 1:
            text = f"{first}" if first == previous else f"{first}-{previous}"
            yield f"{text} flexible" if flexible else text
            first = version or 0
        previous = version or 0


def written() -> str:
    """The contents of codec/flattened.py."""
    texts = Texts()
    for cls in messages():
        declared = wire.api(cls).versions
        for version in range(declared.low, declared.high + 1):
            texts.add(cls, version)
    lines = [HEAD, "OPS = {\n"]
    lines += [f"    {word!r}: {op!r},\n" for word, op in sorted(texts.words.items(), key=lambda each: each[1])]
    lines += ["}\n", '"""Word -> code, whether null is allowed, least size, code of the length, longest length."""\n\n']
    lines += ["PROGRAMS = {\n"]
    for module, classes in sorted(texts.versions.items()):
        lines.append(f"    {module!r}: {{\n")
        for name, of_class in classes.items():
            lines.append(f"        {name!r}: {{\n")
            for (text, flexible), versions in of_class.items():
                lines += [f"            {each!r}: {text!r},\n" for each in ranges(versions, flexible)]
            lines.append("        },\n")
        lines.append("    },\n")
    lines += ["}\n", '"""Module -> class -> versions -> fields, each with its op."""\n']
    done = subprocess.run(
        [RUFF, "format", "--stdin-filename", str(PATH), "-"], input="".join(lines), capture_output=True, text=True,
        check=True, cwd=ROOT,
    )  # fmt: skip
    return done.stdout


def main() -> None:
    PATH.write_text(written())


if __name__ == "__main__":
    main()
