"""Writes the faces of the blocking client, `sdk/sync`, from those that await: ``python -m tests.sdk.faces``.

The classes of a module are taken as they are, without what waits, and with blocking names. Nothing else differs but
what `WORDS` says; whatever a class needs of the module that it comes from is imported from there. `test_sync.py` holds
what is written to this.
"""

import ast
import re
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).parents[2]
WIDTH = 120
RUFF = Path(sys.executable).parent / "ruff"
FOLDER = ROOT / "sdk/sync"
TAKEN = {
    "client": ("Client",),
    "producer": ("_MANY", "Unopened", "Transaction", "Producer", "_SEND_SOON"),
    "consumer": ("RebalanceListener", "_Listening", "ConsumerInterceptor", "Batch", "Consumer"),
    "transform": ("Batches", "TransformTransaction", "Transform"),
}
"""Of each module of `sdk`, what is taken; all else it shares."""
ABOUT = {
    "client": "What a client does, for code that blocks",
    "producer": "The face of a producer, for code that blocks",
    "consumer": "The face of a consumer, for code that blocks",
    "transform": "Consume, transform, produce, for code that blocks",
}
WITHOUT_ASYNC = [
    (r"\basync (def|with|for)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\b__a(enter|exit|iter|next)__", r"__\1__"),
]
"""What is other in all code that blocks."""
SYNTAX = [
    *WITHOUT_ASYNC,
    (r"\bdef aclose\b", "def close"),
    (r"\bDriver\[Any\]", "ThreadDriver"),
    (r"\bDriverType\b", "type[ThreadDriver]"),
    (r"from ottla\.sdk\.drivers\.driver import .*", "from ottla.sdk.drivers.threads import ThreadDriver"),
    (r"\bfast\.send_soon\b", "fast.accept"),
    (r"\b_MANY = 256\b", "_MANY = 2**14"),  # between two looks at the clock is nobody's turn
]
"""What is other in the faces, wherever it stands."""
WORDS = {
    "client": [],
    "producer": [
        (
            "A record for which there is room may be accepted by the call already. Await it in any case: nothing is "
            "sent while your task never waits.",
            "What it waits for is room alone; batches are sent by the client's own thread, whatever yours does.",
        ),
        ("from whichever tasks.", "from whichever threads."),
        ("calls of other tasks, because", "calls of other threads, because"),
        ("or the call is cancelled, stays so.", "or the call is interrupted, stays so."),
        (
            "A `send_soon`, `send` or `send_many` that another task called before may be waiting only to let other "
            "tasks run: this record is accepted before theirs. It never overtakes one that waits for room. If records "
            "of several tasks have to keep their order, send them all by calls that wait.",
            "It never overtakes a `send_soon`, `send` or `send_many` that waits for room in another thread. If records "
            "of several threads have to keep their order, send them all by calls that wait.",
        ),
        (
            "there is no room, or others wait for it; nothing is sent while your task does not await something.",
            "there is no room, or others wait for it.",
        ),
        (
            "Left by an error or a cancellation, the producer",
            "Left by an error, such as Ctrl-C, the producer",
        ),
        (
            "Cancelled before the record is accepted, it is not sent; after that delivery goes on without you",
            "Interrupted before the record is accepted, it is not sent; after that delivery goes on without you",
        ),
        (
            "is called with the `Receipt` or the error, so nothing is raised later.",
            "is called with the `Receipt` or the error, so nothing is raised later: in your thread, or another that "
            "uses the client, within a call of it.",
        ),
        ("cannot be called, or would have to be awaited.", "cannot be called, or is ``async``."),
    ],
    "consumer": [
        (
            "Every method is given the consumer that has the partitions, and may await: a seek",
            "Every method is given the consumer that has the partitions, in the thread of the loop: a seek",
        ),
        (
            "where yours raises, or is cancelled (by a ``move_on_after`` around the loop, say), what it left",
            "where yours raises, or is interrupted (by Ctrl-C, say), what it left",
        ),
        (
            "Left by an error or a cancellation the block does so",
            "Left by an error, such as Ctrl-C, the block does so",
        ),
        (
            "A task that waits for a batch while another one leaves",
            "A thread that waits for a batch while another one leaves",
        ),
        ("another task waits for a batch, or a method", "another thread waits for a batch, or a method"),
        ("while another task has a batch in hand", "while another thread has a batch in hand"),
        ("a commit that nobody awaited was refused.", "a commit that nobody waited for was refused."),
    ],
    "transform": [],
}
"""What is said otherwise, module by module: prose, however its lines are broken."""


def written(name: str) -> str:
    """The blocking module made of ``sdk/<name>.py``."""
    source = (ROOT / f"sdk/{name}.py").read_text()
    tree = ast.parse(source)
    lines = source.splitlines(keepends=True)
    parts: dict[str, str] = {}
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            parts[node.name] = "".join(lines[node.lineno - 1 : node.end_lineno])
        elif isinstance(node, ast.Assign) and isinstance(target := node.targets[0], ast.Name):
            parts[target.id] = "".join(lines[node.lineno - 1 : node.end_lineno])
    body = "\n\n".join(parts[each] for each in TAKEN[name])
    for old, new in WORDS[name]:
        body, count = re.subn(r"\s+".join(map(re.escape, old.split())), new.replace("\\", r"\\"), body)
        assert count, f"sdk/{name}.py says no more: {old}"
    for pattern, replaced in SYNTAX:
        body = re.sub(pattern, replaced, body)
    about = f'"""{ABOUT[name]}.\n\nMade of `ottla.sdk.{name}` by tests/sdk/faces.py: change it there.\n"""\n\n'
    return about + _imports(name, tree) + "\n\n" + _refilled(body)


def _refilled(text: str) -> str:
    """With its paragraphs wrapped again where a line has become too long."""
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


def _imports(name: str, tree: ast.Module) -> str:
    """All that may be needed: what the module imports, and what else it has. ruff takes out what is not."""
    lines = ["from ottla.sdk.drivers.threads import ThreadDriver"]
    shared = {"K", "V"} if name == "producer" else set()
    for node in tree.body:
        if isinstance(node, ast.Import):
            lines.append(ast.unparse(node))
        elif isinstance(node, ast.ImportFrom):
            other = (node.module or "").removeprefix("ottla.sdk.")
            for each in node.names:
                made = each.name in TAKEN.get(other, ())
                lines.append(f"from {f'ottla.sdk.sync.{other}' if made else node.module} import {each.name}")
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            shared.add(node.name)
        elif isinstance(node, ast.Assign) and isinstance(target := node.targets[0], ast.Name):
            shared.add(target.id)
    lines += [f"from ottla.sdk.{name} import {each}" for each in sorted(shared - {*TAKEN[name], "T", "__all__"})]
    return "\n".join(lines) + "\n"


def formatted(text: str) -> str:
    """As ruff has it, which the tree is held to."""
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
    """What ``sdk/sync/<name>.py`` is to be."""
    return formatted(written(name))


def main() -> None:
    for name in TAKEN:
        (FOLDER / f"{name}.py").write_text(made(name))


if __name__ == "__main__":
    main()
