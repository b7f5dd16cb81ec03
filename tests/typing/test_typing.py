"""Type checkers on a user's program: they accept the good one, and report the right error on each wrong line.

pyright runs as basedpyright, the same checker with its runtime in the wheel; its mode "strict" is pyright's own. Both
check the program from outside the tree, like a user's.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import WHOLE
from tests.typing import good

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent

HEAD = """
from ottla.codec import BatchBuilder, Compression, Record, RecordBatch, build, engine, parse, read_batches, unknown_tags
from ottla.codec.apis.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.codec.records import Columns
from ottla.errors import BrokerError, DecodeError
from ottla.sdk.client import Client, connect


async def wrong(
    request: MetadataRequest, response: MetadataResponse, record: Record, batch: RecordBatch, columns: Columns,
    client: Client, refused: BrokerError, broken: DecodeError,
) -> None:
"""

WRONG = [
    ("MetadataRequest(topic=None)", "call-arg", "reportCallIssue"),
    ("MetadataRequest(None)", "call-arg", "reportCallIssue"),
    ("MetadataRequestTopic(name=5)", "arg-type", "reportArgumentType"),
    ("MetadataRequest(topics=['events'])", "arg-type", "reportArgumentType"),
    ("request.allow = True", "attr-defined", "reportAttributeAccessIssue"),
    ("request.allow_auto_topic_creation = 'yes'", "assignment", "reportAttributeAccessIssue"),
    ("len(request.topics)", "arg-type", "reportArgumentType"),
    ("response.brokers[0].hostname", "attr-defined", "reportAttributeAccessIssue"),
    ("response.brokers[0].rack.upper()", "union-attr", "reportOptionalMemberAccess"),
    ("response.brokers[0].port + 'x'", "operator", "reportOperatorIssue"),
    ("response.brokers.append(None)", "attr-defined", "reportAttributeAccessIssue"),
    ("build(request)", "call-arg", "reportCallIssue"),
    ("build(5, 9)", "arg-type", "reportArgumentType"),
    ("parse(int, 9, b'')", "type-var", "reportArgumentType"),
    ("build(request, '9')", "arg-type", "reportArgumentType"),
    ("text: str = build(request, 9)", "assignment", "reportAssignmentType"),
    ("parse(MetadataRequest, 9, 'text')", "arg-type", "reportArgumentType"),
    ("parse(request, 9, b'')", "arg-type", "reportArgumentType"),
    ("other: MetadataResponse = parse(MetadataRequest, 9, b'')[0]", "assignment", "reportAssignmentType"),
    ("unknown_tags(request)[0] = b'x'", "index", "reportIndexIssue"),
    ("unknown_tags(request)[0].upper().encode()", "attr-defined", "reportAttributeAccessIssue"),
    ("engine == 'rust'", "comparison-overlap", "reportUnnecessaryComparison"),
    ("Compression.ZIP", "attr-defined", "reportAttributeAccessIssue"),
    ("BatchBuilder().append(0, 'key', b'value')", "arg-type", "reportArgumentType"),
    ("BatchBuilder().append(0, b'key', b'value', {'name': b'value'})", "arg-type", "reportArgumentType"),
    ("BatchBuilder().build(compression='lz4')", "arg-type", "reportArgumentType"),
    ("BatchBuilder().extend_columns(columns, columns.keys)", "call-overload", "reportCallIssue"),
    ("BatchBuilder().extend_columns(columns.timestamps)", "call-overload", "reportArgumentType"),
    ("BatchBuilder().extend([b'value'])", "list-item", "reportArgumentType"),
    ("record.value.decode()", "union-attr", "reportOptionalMemberAccess"),
    ("record.offset = 'first'", "assignment", "reportAttributeAccessIssue"),
    ("[name.decode() for name, _ in record.headers]", "attr-defined", "reportAttributeAccessIssue"),
    ("batch.records().append(record)", "attr-defined", "reportAttributeAccessIssue"),
    ("next(read_batches(b'')).value", "attr-defined", "reportAttributeAccessIssue"),
    ("columns.values.buffers[3]", "misc", "reportGeneralTypeIssues"),
    ("columns.keys[0].decode()", "union-attr", "reportOptionalMemberAccess"),
    ("refused.code.value", "attr-defined", "reportAttributeAccessIssue"),
    ("broken.offset.bit_size()", "attr-defined", "reportAttributeAccessIssue"),
    ("connect(9092)", "arg-type", "reportArgumentType"),
    ("with client: pass", "attr-defined", "reportGeneralTypeIssues"),
    ("client.create_topics()", "attr-defined", "reportAttributeAccessIssue"),
    ("client.producer(acks='most')", "arg-type", "reportArgumentType"),
    ("await client.producer().send('events', 'text')", "arg-type", "reportArgumentType"),
    ("client.producer().send_nowait(b'events', None).offset + 1", "arg-type", "reportArgumentType"),
    ("client.consumer('events', reset='latest')", "arg-type", "reportArgumentType"),
    (
        "(await client.describe_topic('events')).partitions[0].leader.upper()",
        "attr-defined",
        "reportAttributeAccessIssue",
    ),
]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a good and a wrong program, which find ottla as a user's program does."""
    folder = tmp_path_factory.mktemp("program")
    (folder / "good.py").write_text(Path(good.__file__).read_text())
    (folder / "wrong.py").write_text(HEAD + "".join(f"    {line}\n" for line, *_ in WRONG))
    settings = {"typeCheckingMode": "strict", "extraPaths": [str(ROOT / "src")]}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    return folder


def compare(errors: list[tuple[str, int, str]], rule: int) -> None:
    """Compare errors (file, line, rule) with `WRONG`, column ``rule``: at least one on each line, none elsewhere."""
    first = HEAD.count("\n") + 1
    lines = range(first, first + len(WRONG))
    assert [each for each in errors if each[0] != "wrong.py" or each[1] not in lines] == []
    broken = {number: {rule for _, line, rule in errors if line == number} for number in lines}
    unseen = [
        (WRONG[number - first], rules) for number, rules in broken.items() if WRONG[number - first][rule] not in rules
    ]
    assert unseen == []


@pytest.mark.slow
def test_mypy_accepts_what_is_right_and_refuses_what_is_wrong(program: Path) -> None:
    # Silent, because mypy checks modules on MYPYPATH, unlike installed ones; another test checks ottla itself.
    options = ["--strict", "--output=json", "--config-file=", "--follow-imports=silent"]
    options.append(f"--cache-dir={ROOT / '.mypy_cache' / 'program'}")
    environment = os.environ | {"MYPYPATH": str(ROOT / "src")}
    command = [str(BIN / "mypy"), *options, "good.py", "wrong.py"]
    done = subprocess.run(command, cwd=program, env=environment, capture_output=True, text=True, timeout=WHOLE)
    reports = [json.loads(line) for line in done.stdout.splitlines()]
    compare([(each["file"], each["line"], each["code"]) for each in reports if each["severity"] == "error"], 1)


@pytest.mark.slow
def test_pyright_accepts_what_is_right_and_refuses_what_is_wrong(program: Path) -> None:
    command = [str(BIN / "basedpyright"), "--outputjson", f"--pythonpath={sys.executable}"]
    done = subprocess.run(command, cwd=program, capture_output=True, text=True, timeout=WHOLE)
    reports = [each for each in json.loads(done.stdout)["generalDiagnostics"] if each["severity"] == "error"]
    compare([(Path(each["file"]).name, each["range"]["start"]["line"] + 1, each["rule"]) for each in reports], 2)


def test_the_good_program_runs() -> None:
    good.main()
