"""Write the faces of the blocking client, `sdk/sync`, from the asynchronous ones: ``make faces``.

tools/options.py writes one of the asynchronous ones, sdk/client_parts.py, before that.

A face copies the classes of a module without ``async`` and ``await``, and with the names of blocking code. `WORDS` has
all other differences. The face imports everything else that its classes need from the same module.
`tests/sdk/test_sync.py` compares the faces with the output of this file.
"""

import ast
import re
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).parents[1]
WIDTH = 120
RUFF = Path(sys.executable).parent / "ruff"
FOLDER = ROOT / "sdk/sync"
TAKEN = {
    "client_parts": ("ClientParts",),
    "client": ("Client",),
    "producer": ("_MANY", "Unopened", "Transaction", "Producer"),
    "consumer": ("RebalanceListener", "_Listening", "ConsumerInterceptor", "ConsumerHooks", "Batch", "Consumer"),
    "share_consumer": ("SharedRecord", "ShareConsumer"),
    "transform": ("Batches", "TransformTransaction", "Transform"),
}
"""The parts of each module of `sdk` that its face copies; it imports all others."""
ABOUT = {
    "client": "The methods of a client, for blocking code",
    "client_parts": "The calls of a client that take options, for blocking code",
    "producer": "The face of a producer, for blocking code",
    "consumer": "The face of a consumer, for blocking code",
    "share_consumer": "The face of a share consumer, for blocking code",
    "transform": "Consume, transform, produce, for blocking code",
}
WITHOUT_ASYNC = [
    (r"\basync (def|with|for)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\b__a(enter|exit|iter|next)__", r"__\1__"),
]
"""Substitutions in all blocking code."""
SYNTAX = [
    *WITHOUT_ASYNC,
    (r"\bdef aclose\b", "def close"),
    (r"\bAsyncBlock\b", "BlockingBlock"),
    (r"\bDriver\[Any\]", "ThreadDriver"),
    (r"\bDriverType\b", "type[ThreadDriver]"),
    (r"from ottla\.sdk\.drivers\.driver import .*", "from ottla.sdk.drivers.threads import ThreadDriver"),
    (r"\bSendSoon\b", "BlockingSendSoon"),
    (r"\b_MANY = 256\b", "_MANY = 2**14"),  # another thread can run at any time, so the clock may be read less often
]
"""Substitutions in all faces."""
WORDS = {
    "client": [],
    "client_parts": [],
    "producer": [
        ("or the call is cancelled, records that", "or the call is interrupted, records that"),
        (
            "An earlier `send_soon`, `send` or `send_many` of another task may be waiting only to let other tasks run: "
            "then this record is accepted before theirs. It never overtakes a record that waits for space. If records "
            "of several tasks have to keep their order, send them all by calls that wait.",
            "It never overtakes a `send_soon`, `send` or `send_many` that waits for space in another thread. If "
            "records of several threads have to keep their order, send them all by calls that wait.",
        ),
        (
            "there is no space, or other records wait for it; no record is sent until your task awaits something.",
            "there is no space, or other records wait for it.",
        ),
        (
            "If the block ends by an error or a cancellation, the producer",
            "If the block ends by an error, such as Ctrl-C, the producer",
        ),
        (
            "If cancelled before the record is accepted, the record is not sent. If cancelled after that",
            "If interrupted before the record is accepted, the record is not sent. If interrupted after that",
        ),
    ],
    "consumer": [
        (
            "Every method is passed the consumer, and may await: it may seek",
            "Every method is passed the consumer, and runs in the thread of the loop: it may seek",
        ),
        (
            "if your method raises, or is cancelled (say by a ``move_on_after`` around the loop), finishing",
            "if your method raises, or is interrupted (say by Ctrl-C), finishing",
        ),
        (
            "When the block ends by an error or a cancellation, all this",
            "When the block ends by an error, such as Ctrl-C, all this",
        ),
        ("If another task waits for a batch when", "If another thread waits for a batch when"),
        ("another task waits for a batch, or a method", "another thread waits for a batch, or a method"),
        ("while another task has a batch that", "while another thread has a batch that"),
        ("a commit that was not awaited was refused.", "a commit that no call waited for was refused."),
    ],
    "share_consumer": [
        ("An error or a cancellation releases the record", "An error (Ctrl-C, too) releases the record"),
        ("Any number of tasks may ask one consumer", "Any number of threads may ask one consumer"),
        ("When an error or a cancellation ends the block", "When an error (Ctrl-C, too) ends the block"),
        ("If another task waits for a record when", "If another thread waits for a record when"),
        ('``acknowledge="implicit"``, another task waits', '``acknowledge="implicit"``, another thread waits'),
    ],
    "transform": [],
}
"""Prose that differs, module by module, wherever its lines break."""


def written(name: str) -> str:
    """The blocking module generated from ``sdk/<name>.py``."""
    source = (ROOT / f"sdk/{name}.py").read_text()
    tree = ast.parse(source)
    lines = source.splitlines(keepends=True)
    parts: dict[str, str] = {}
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            first = node.decorator_list[0].lineno if node.decorator_list else node.lineno
            parts[node.name] = "".join(lines[first - 1 : node.end_lineno])
        elif isinstance(node, ast.Assign) and isinstance(target := node.targets[0], ast.Name):
            parts[target.id] = "".join(lines[node.lineno - 1 : node.end_lineno])
    body = "\n\n".join(parts[each] for each in TAKEN[name])
    for old, new in WORDS[name]:
        body, count = re.subn(r"\s+".join(map(re.escape, old.split())), new.replace("\\", r"\\"), body)
        assert count, f"sdk/{name}.py no longer contains: {old}"
    for pattern, replaced in SYNTAX:
        body = re.sub(pattern, replaced, body)
    origin = f"# Generated, do not edit: `make faces` writes this file from sdk/{name}.py."
    about = f'{origin}\n"""{ABOUT[name]}."""\n\n'
    return about + _imports(name, tree, body) + "\n\n" + _refilled(body)


def _refilled(text: str) -> str:
    """The text, with each paragraph that has a line too long wrapped again."""
    lines, done = text.splitlines(), []
    while lines:
        line = lines.pop(0)
        if len(line) > WIDTH:
            indent = rest = _indent(line)
            if lines and lines[0].strip() and _indent(lines[0]) > indent and re.match(r" +[\w, ]+: ", line):
                rest = _indent(lines[0])
            paragraph = [line.strip()]
            while lines and lines[0].strip() and _indent(lines[0]) == rest and not lines[0].strip().startswith('"""'):
                if rest == indent and re.match(r" +[\w, ]+: ", lines[0]):
                    break
                paragraph.append(lines.pop(0).strip())
            filled = textwrap.fill(
                " ".join(paragraph),
                WIDTH,
                initial_indent=" " * indent,
                subsequent_indent=" " * (rest if rest > indent else indent + 4 * bool(re.match(r" +[\w, ]+: ", line))),
                break_long_words=False,
                break_on_hyphens=False,
            )
            done += filled.splitlines()
        else:
            done.append(line)
    return "\n".join(done) + "\n"


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _imports(name: str, tree: ast.Module, body: str) -> str:
    """All imports that the face may need, including from its own source module; ruff removes the unused ones."""
    used = set(re.findall(r"\w+", body))
    lines = [
        "from ottla.sdk.blocks import BlockingBlock",
        "from ottla.sdk.drivers.threads import ThreadDriver",
        "from ottla.sdk.produce.append import BlockingSendSoon",
    ]
    shared: set[str] = set()
    for_types: list[str] = []
    for node in tree.body:
        if isinstance(node, ast.Import):
            lines.append(ast.unparse(node))
        elif isinstance(node, ast.ImportFrom):
            other = (node.module or "").removeprefix("ottla.sdk.")
            for each in node.names:
                made = each.name in TAKEN.get(other, ())
                lines.append(f"from {f'ottla.sdk.sync.{other}' if made else node.module} import {each.name}")
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            # If all imports of a block are unused, ruff would leave `pass`.
            node.body = [each for each in node.body if used & {alias.name for alias in getattr(each, "names", ())}]
            for_types += [ast.unparse(node)] if node.body else []
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            shared.add(node.name)
        elif isinstance(node, ast.Assign) and isinstance(target := node.targets[0], ast.Name):
            shared.add(target.id)
    lines += [f"from ottla.sdk.{name} import {each}" for each in sorted(shared - {*TAKEN[name], "T", "__all__"})]
    return "\n".join(lines + for_types) + "\n"


def formatted(text: str) -> str:
    """The text as ruff formats it, because `make check` compares."""
    ruff = [str(RUFF)]
    name = ["--stdin-filename", str(FOLDER / "made.py")]
    fixed = subprocess.run(
        [*ruff, "check", "--select", "I,F401", "--fix", "--quiet", *name, "-"],
        input=text, capture_output=True, text=True, check=True, cwd=ROOT,
    )  # fmt: skip
    done = subprocess.run(
        [*ruff, "format", *name, "-"], input=fixed.stdout, capture_output=True, text=True, check=True, cwd=ROOT
    )
    return done.stdout


def made(name: str) -> str:
    """The contents of ``sdk/sync/<name>.py``."""
    return formatted(written(name))


def main() -> None:
    for name in TAKEN:
        (FOLDER / f"{name}.py").write_text(made(name))


if __name__ == "__main__":
    main()
