"""No test depends on the load of the machine: rules for the source of the tests.

Each rule describes a kind of test that failed at random. `ALLOWED` holds the exceptions, each with its reason.
"""

import ast
import functools
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.patience import HUNG

TESTS = Path(__file__).parents[1]
UNCHECKED = {
    "bench": "it measures the machine",
    "sim": "its time is virtual",
}
"""Folder of tests outside of the rules -> the reason."""
ALLOWED = {
    "gates.py: _show_progress": "it waits between two lines of progress",
    "interop/librdkafka_transact.py: flush": "its caller tries again",
    "kafka.py: known_brokers": "one of many attempts",
    "sdk/test_drivers.py: elsewhere": "it asserts that nothing has happened",
    "sdk/test_loops.py: _is_left_in_a_finalizer": "the finalizer outlasts the timeout, which has to pass within it",
    "sdk/test_loops.py: test_a_thread_leaves_the_loop_free": "the timeout is what it expects",
    "sdk/test_loops.py: test_what_takes_too_long_is_cancelled_and_fails": "the timeout is what it expects",
    "sdk/test_read_committed.py: test_a_batch_in_hand_is_not_committed_by_what_is_hidden_behind_it": (
        "it asserts that nothing has happened"
    ),
    "sdk/test_near_replicas_in_kafka.py: "
    "test_what_is_there_already_is_read_on_before_the_cluster_notices_that_the_near_replica_died": (
        "it compares with the cluster's own timeout"
    ),
}
"""``file: function`` -> the reason for the exception."""

NETWORK = {"create_connection", "create_server", "open_tcp_listeners", "open_tcp_stream", "serve_tcp", "socket", "tcp"}
"""Names of functions that open a socket on the network, including `tests.tcp`."""
FIXTURES = {"kafka", "kafka_cluster", "old_kafka", "ottla_broker"}
WALL_CLOCKS = {"current_time", "monotonic", "perf_counter", "time"}
"""Functions that read the wall clock; `process_time` and `thread_time` measure CPU time instead."""
STEADY_CLOCKS = WALL_CLOCKS - {"time"}
"""Those that only tests read; `time.time` also dates tokens and records."""
ATTEMPT = 2.0
"""Seconds of one of many waits."""
ENDS_NOWHERE = {0, 1, 9}
"""Ports: any free one, and unused ones."""
DIALS = {"bind", "connect", "connect_ex", "create_connection", "create_server", "open_tcp_listeners", "open_tcp_stream"}
SLEEPS = {"asyncio.sleep", "loop.sleep", "time.sleep", "trio.sleep"}
WAITS_TO_BE_CANCELLED = SLEEPS - {"time.sleep"} | {"loop.sleep_forever", "trio.sleep_forever"}
POSITIONAL = {"awaitTermination", "fail_after", "flush", "join", "result", "settimeout", "wait"}
GUARDS = POSITIONAL | {"communicate", "consume", "create_connection", "run", "urlopen"}
"""Calls with a timeout that only guards against hanging; those of `POSITIONAL` may have it as their first argument."""
FUNCTIONS = ast.FunctionDef, ast.AsyncFunctionDef
BLOCKS = *FUNCTIONS, ast.For, ast.AsyncFor, ast.While, ast.If, ast.With, ast.AsyncWith, ast.Try
PARTS = ("body", "orelse", "finalbody")
MOMENTARY = {"awaitTermination", "consume", "wait"}
"""Those that loops call again and again."""


def name_of(node: ast.AST) -> str:
    """The last part of a dotted name."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


@functools.cache
def _by_kind(tree: ast.AST) -> dict[type[ast.AST], list[Any]]:
    found: dict[type[ast.AST], list[Any]] = {}
    for node in ast.walk(tree):
        found.setdefault(type(node), []).append(node)
    return found


def nodes(tree: ast.AST, *kinds: type[ast.AST]) -> Iterator[Any]:
    """The nodes of these types; by type, because the rules ask for few of many nodes."""
    return itertools.chain.from_iterable(_by_kind(tree).get(kind, []) for kind in kinds)


def calls(tree: ast.AST, names: set[str]) -> Iterator[ast.Call]:
    return (each for each in nodes(tree, ast.Call) if name_of(each.func) in names)


def number(node: ast.AST | None) -> float | None:
    is_number = isinstance(node, ast.Constant) and type(node.value) in (int, float)
    return node.value if is_number else None  # type: ignore[union-attr] # is_number checked the type


@functools.cache
def jumps(module: ast.AST) -> bool:
    """Whether the module uses a mocked clock that jumps by itself."""
    arguments = {each.arg for each in nodes(module, ast.arg, ast.keyword)}
    return not arguments.isdisjoint({"autojump_threshold", "autojump_clock"})


def network_beside_a_mocked_clock(module: ast.Module) -> Iterator[ast.AST]:
    """The clock jumps while the system still moves bytes: use `tests.pairs`, which connects without the network."""
    if not jumps(module):
        return
    for node in nodes(module, ast.Import, ast.ImportFrom, ast.Call, ast.arg):
        imported = [each.name.rpartition(".")[2] for each in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            imported = [(node.module or "").rpartition(".")[2], *(each.name for each in node.names)]
        named = name_of(node.func) if isinstance(node, ast.Call) else node.arg if isinstance(node, ast.arg) else ""
        if NETWORK & {*imported, named} or named in FIXTURES:
            yield node


def upper_bounds_on_wall_time(module: ast.Module) -> Iterator[ast.AST]:
    """A busy machine exceeds any bound: set the timeout that must not pass to `FAR`, or measure CPU time."""
    if jumps(module) or not any(calls(module, WALL_CLOCKS)):
        return
    for function in functions(module):
        if any(calls(function, WALL_CLOCKS)):
            yield from _bounds(function)


def _bounds(function: ast.AST) -> Iterator[ast.Compare]:
    def is_a_time(node: ast.AST) -> bool:
        return name_of(node) in times or any(calls(node, WALL_CLOCKS))

    def is_a_difference(node: ast.AST) -> bool:
        return name_of(node) in differences or any(
            isinstance(each, ast.BinOp)
            and isinstance(each.op, ast.Sub)
            and is_a_time(each.left)
            and number(each.right) is None
            for each in ast.walk(node)
        )

    times: set[str] = set()
    differences: set[str] = set()
    for node in nodes(function, ast.Assign):
        if any(calls(node.value, WALL_CLOCKS)):
            (differences if is_a_difference(node.value) else times).update(map(name_of, node.targets))
    times.discard("")
    differences.discard("")
    for stated in (each.test for each in nodes(function, ast.Assert)):
        for compared in (each for each in ast.walk(stated) if isinstance(each, ast.Compare)):
            sides = itertools.pairwise([compared.left, *compared.comparators])
            for operator, (left, right) in zip(compared.ops, sides, strict=True):
                smaller = right if isinstance(operator, ast.Gt | ast.GtE) else left
                if is_a_difference(smaller):
                    yield compared


def ports_that_are_written_down(module: ast.Module) -> Iterator[ast.AST]:
    """Another program may use the port: take 0, or `free_ports`."""
    for call in calls(module, DIALS):
        for argument in call.args:
            parts = argument.elts if isinstance(argument, ast.Tuple) else [argument]
            port = number(parts[-1])
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                text = argument.value.rpartition(":")[2]
                port = int(text) if text.isdecimal() else None
            if port is not None and port not in ENDS_NOWHERE and (port >= 1024 or isinstance(argument, ast.Tuple)):
                yield call


def guards_in_seconds(module: ast.Module) -> Iterator[ast.AST]:
    """A guard against hanging makes no promise about speed: use `HUNG`, or `PROGRAM`."""
    if jumps(module):
        return
    constants = dict(_constants(module))
    for call in calls(module, GUARDS):
        timeout = next((each.value for each in call.keywords if each.arg == "timeout"), None)
        if timeout is None and name_of(call.func) in POSITIONAL and call.args:
            timeout = call.args[0]
        if _seconds(timeout, constants) > (ATTEMPT if name_of(call.func) in MOMENTARY else 0):
            yield call
    for function in functions(module):
        in_time = {
            name_of(each.test.operand.value)
            for each in nodes(function, ast.Assert)
            if isinstance(each.test, ast.UnaryOp)
            and isinstance(each.test.operand, ast.Attribute)
            and each.test.operand.attr == "cancelled_caught"
        }
        for call, scope, _ in _timed_scopes(function):
            if name_of(scope) in in_time and _seconds(call.args[0], constants) > 0:
                yield call
        optional = [*function.args.posonlyargs, *function.args.args][-len(function.args.defaults) or None :]
        defaults = zip(optional, function.args.defaults, strict=False)
        named = zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
        for argument, default in itertools.chain(defaults, named):
            if argument.arg == "timeout" and 0 < (number(default) or 0) < HUNG:
                yield argument
    for node in nodes(module, ast.BinOp):  # the deadline of a loop, usually
        is_later = isinstance(node.op, ast.Add) and any(calls(node.left, STEADY_CLOCKS))
        if is_later and _seconds(node.right, constants) >= 1:
            yield node


def cancellations_by_time(module: ast.Module) -> Iterator[ast.AST]:
    """The work before the sleep may take longer on a busy machine: cancel the scope after the work instead."""
    if jumps(module):
        return
    for call, _, body in _timed_scopes(module):
        sleeps = (each for part in body for each in calls(part, {"sleep", "sleep_forever"}))
        works = len(body) > 1 or not isinstance(body[0], ast.Expr)
        if works and any(ast.unparse(each.func) in WAITS_TO_BE_CANCELLED for each in sleeps):
            yield call


def _timed_scopes(tree: ast.AST) -> Iterator[tuple[ast.Call, ast.AST, list[ast.stmt]]]:
    """Each call of ``move_on_after`` in a ``with``, the name of its scope, and the body."""
    for node in nodes(tree, ast.With):
        for item in node.items:
            if isinstance(item.context_expr, ast.Call) and name_of(item.context_expr.func) == "move_on_after":
                yield item.context_expr, item.optional_vars or item.context_expr, node.body


def _seconds(node: ast.AST | None, constants: dict[str, float]) -> float:
    """The value of a number, or of a name for it in the module; 0 for anything else, such as `HUNG`."""
    return number(node) or (constants.get(node.id, 0.0) if isinstance(node, ast.Name) else 0.0)


def _constants(module: ast.Module) -> Iterator[tuple[str, float]]:
    """The names of the module's numbers."""
    for node in module.body:
        if isinstance(node, ast.Assign) and (seconds := number(node.value)) is not None:
            yield from ((name_of(target), seconds) for target in node.targets)


def sleeps_before_an_assertion(module: ast.Module) -> Iterator[ast.AST]:
    """A busy machine may do nothing in that time: wait for a condition."""
    if jumps(module):
        return
    for block in (getattr(each, part, []) for each in nodes(module, *BLOCKS) for part in PARTS):
        for one, other in itertools.pairwise(block):
            value = one.value if isinstance(one, ast.Expr) else None
            call = value.value if isinstance(value, ast.Await) else value
            if isinstance(call, ast.Call) and ast.unparse(call.func) in SLEEPS and isinstance(other, ast.Assert):
                yield one


def functions(module: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    return nodes(module, *FUNCTIONS)


RULES: list[Callable[[ast.Module], Iterator[ast.AST]]] = [
    network_beside_a_mocked_clock,
    upper_bounds_on_wall_time,
    ports_that_are_written_down,
    guards_in_seconds,
    sleeps_before_an_assertion,
    cancellations_by_time,
]


@functools.cache
def found(rule: Callable[[ast.Module], Iterator[ast.AST]], module: ast.Module) -> list[tuple[str, int]]:
    """The function, or "", and the line of everything that a rule rejects."""
    rejected = []
    for node in rule(module):
        line: int = getattr(node, "lineno", 0)
        around = [each for each in functions(module) if each.lineno <= line <= (each.end_lineno or 0)]
        rejected.append((min(around, key=lambda each: each.lineno).name if around else "", line))
    return rejected


@functools.cache
def modules() -> dict[str, ast.Module]:
    paths = {path.relative_to(TESTS).as_posix(): path for path in sorted(TESTS.rglob("*.py"))}
    checked = {name: path for name, path in paths.items() if name.partition("/")[0] not in UNCHECKED}
    return {name: ast.parse(path.read_text()) for name, path in checked.items() if path != Path(__file__)}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_no_test_depends_on_how_busy_the_machine_is(rule: Callable[[ast.Module], Iterator[ast.AST]]) -> None:
    rejected = [
        f"tests/{name}:{line}: {function}"
        for name, module in modules().items()
        for function, line in found(rule, module)
        if f"{name}: {function}" not in ALLOWED
    ]
    assert rejected == [], f"{rule.__doc__}\n" + "\n".join(rejected)


def test_every_exception_is_needed() -> None:
    needed = {
        f"{name}: {function}"
        for rule in RULES
        for name, module in modules().items()
        for function, _ in found(rule, module)
    }
    assert set(ALLOWED) <= needed


def test_no_test_has_a_limit_of_its_own() -> None:
    """A busy machine exceeds any figure that fits one test: `tests.patience.WHOLE` is the limit of all."""
    texts = {path: path.read_text() for path in TESTS.rglob("*.py") if path.name != "conftest.py"}
    limited = [str(path) for path, text in texts.items() if "pytest.mark." + "timeout(" in text]
    assert limited == []


@pytest.mark.parametrize(
    ("rule", "source"),
    [
        (network_beside_a_mocked_clock, "import socket\nMockClock(autojump_threshold=0)"),
        (network_beside_a_mocked_clock, "from tests.tcp import peer\nasync def test(autojump_clock): ..."),
        (network_beside_a_mocked_clock, "async def test(autojump_clock, ottla_broker): ..."),
        (upper_bounds_on_wall_time, "def test():\n began = time.monotonic()\n assert time.monotonic() - began < 2"),
        (upper_bounds_on_wall_time, "def test():\n a = monotonic()\n took = monotonic() - a\n assert 0 < took <= 2"),
        (upper_bounds_on_wall_time, "def test():\n a = trio.current_time()\n assert 2 > trio.current_time() - a"),
        (ports_that_are_written_down, 'server.bind(("127.0.0.1", 9092))'),
        (ports_that_are_written_down, 'ottla.connect("localhost:9092")'),
        (guards_in_seconds, "subprocess.run(command, timeout=20)"),
        (guards_in_seconds, "SECONDS = 240\nprocess.wait(SECONDS)"),
        (guards_in_seconds, "with trio.fail_after(5): ..."),
        (guards_in_seconds, "thread.join(5)"),
        (guards_in_seconds, "def consume(topic, timeout: float = 60.0): ..."),
        (guards_in_seconds, "deadline = time.monotonic() + 30"),
        (guards_in_seconds, "connection.settimeout(5)"),
        (guards_in_seconds, "consumer.consume(100, timeout=20)"),
        (
            guards_in_seconds,
            "def test():\n with trio.move_on_after(10) as scope: ...\n assert not scope.cancelled_caught",
        ),
        (cancellations_by_time, "with trio.move_on_after(0.1):\n txn.send(b'v')\n trio.sleep_forever()"),
        (sleeps_before_an_assertion, "async def test():\n await trio.sleep(1)\n assert done"),
    ],
)
def test_a_rule_rejects(rule: Callable[[ast.Module], Iterator[ast.AST]], source: str) -> None:
    assert len(list(rule(ast.parse(source)))) == 1


@pytest.mark.parametrize(
    "source",
    [
        "from tests.pairs import peer\nasync def test(autojump_clock):\n assert trio.current_time() - began < 2",
        "def test():\n began = time.monotonic()\n assert time.monotonic() - began > 2",
        "def test():\n began = time.process_time()\n assert time.process_time() - began < 2",
        "def test():\n before = time.time() - 1\n assert before <= record.timestamp <= time.time()",
        "def test():\n with trio.move_on_after(0.1) as nothing: ...\n assert nothing.cancelled_caught",
        "with trio.move_on_after(0.1):\n trio.sleep_forever()",
        'server.bind(("127.0.0.1", 0))\nsubprocess.run(command, timeout=HUNG)\n", ".join(names)',
    ],
)
def test_no_rule_rejects(source: str) -> None:
    assert [each for rule in RULES for each in rule(ast.parse(source))] == []
