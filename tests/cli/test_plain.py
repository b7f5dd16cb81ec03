"""A command line that is parsed without Typer gets the same values as with Typer; Typer parses all others."""

import inspect
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import typer

from ottla.cli import consume, plain, produce, servers
from tests.cli.program import ENVIRONMENT

PLAIN = [
    (servers.broker, ""),
    (servers.broker, "--listen 127.0.0.1:0 --data some/where --json"),
    (servers.broker, "--advertise here:9 --node-id 7 --partitions 3 --health :1 --announce --name lab"),
    (servers.broker, "--no-auto-create --group-delay 0 --sync always --log-format json --log-level debug"),
    (servers.broker, "--auto-create --group-delay 1.5 --partitions 2 --partitions 4"),
    (servers.proxy, "--upstream a:1,b:2 --topic x=observe --topic y=rewrite:crc32 --connect-timeout 2"),
    (servers.proxy, "--config p.toml --upstream-config u.properties --listen :0"),
    (consume.consume, "orders"),
    (consume.consume, "--count 1 orders --from end -b here:9 --isolation read_committed -X a=b -X c=d"),
    (produce.produce, "orders --json --file some/where --partitioner crc32 --compression lz4"),
]
NOT_PLAIN = [
    "--help",
    "--node-id -1",
    "--node-id x",
    "--node-id 1.5",
    "--node-id ٣",
    "--partitions 0",
    "--group-delay 1e3",
    "--sync often",
    "--sync ALWAYS",
    "--data",
    "--data=here",
    "--listen --json",
    "--json yes",
    "--colour red",
    "here",
]


def typers(command: Callable[..., None], words: list[str]) -> dict[str, Any]:
    """The arguments with which Typer calls the command."""
    called: list[dict[str, Any]] = []

    def note(**given: Any) -> None:
        called.append(given)

    note.__signature__ = inspect.signature(command)  # type: ignore[attr-defined] # Typer reads it
    note.__annotations__ = {name: each.annotation for name, each in inspect.signature(command).parameters.items()}
    app = typer.Typer()
    app.command()(note)
    app(words, standalone_mode=False)
    return called[0]


@pytest.mark.parametrize(("command", "line"), PLAIN)
def test_plain_options_are_read_as_typer_reads_them(command: Callable[..., None], line: str) -> None:
    parameters = inspect.signature(command).parameters.items()
    defaults = {name: each.default for name, each in parameters if each.default is not each.empty}
    assert defaults | plain.arguments(command, line.split()) == typers(command, line.split())


@pytest.mark.parametrize("line", NOT_PLAIN)
def test_what_is_not_plain_is_left_to_typer(line: str) -> None:
    with pytest.raises(plain.NotPlain):
        plain.arguments(servers.broker, line.split())


@pytest.mark.parametrize(
    "line", ["", "--json", "orders payments", "orders --partition 1", "orders --from -10", "orders --"]
)
def test_a_reader_without_a_topic_and_words_that_are_not_plain_are_left_to_typer(line: str) -> None:
    with pytest.raises(plain.NotPlain):
        plain.arguments(consume.consume, line.split())


def test_an_option_of_the_environment_is_read_as_typer_reads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTTLA_BOOTSTRAP", "here:9")
    monkeypatch.setenv("OTTLA_COMMAND_CONFIG", "")
    read = plain.arguments(consume.consume, ["orders"])
    assert read == {"topic": "orders", "bootstrap": "here:9"}
    assert typers(consume.consume, ["orders"]).items() >= read.items()


def test_an_empty_word_is_left_to_typer() -> None:
    with pytest.raises(plain.NotPlain):
        plain.arguments(servers.broker, ["--data", ""])


def run(*words: str) -> "subprocess.CompletedProcess[str]":
    code = (
        "import sys, ottla.cli\n"
        "try: ottla.cli.main()\n"
        "finally: print([each for each in ('pydantic', 'rich', 'zeroconf', 'ottla.sdk', 'ottla.cli.consume')"
        " if each in sys.modules])"
    )
    return subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True)


def test_a_server_loads_no_other_command_and_nothing_of_typers_that_is_heavy() -> None:
    done = run("broker", "--listen", "192.0.2.1:0")
    assert done.returncode == 2 and "not one of this machine" in done.stderr
    assert done.stdout.strip() == "[]"


def test_a_reader_loads_no_other_command_and_nothing_of_typers_that_is_heavy() -> None:
    done = run("consume", "orders", "--bootstrap", "127.0.0.1:0")
    assert done.returncode == 2 and "127.0.0.1:0" in done.stderr
    assert done.stdout.strip() == "['ottla.sdk', 'ottla.cli.consume']"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("broker", "--node-id", "x"), "--node-id"),
        (("broker", "--name", "x"), "--announce"),
    ],
)
def test_typer_says_what_is_wrong(words: tuple[str, ...], said: str) -> None:
    done = run(*words)
    assert done.returncode == 2 and "Usage: ottla" in done.stderr and said in done.stderr


@contextmanager
def piped(text: bytes) -> Iterator[tuple[str, int]]:
    """The path and the descriptor of a pipe with a text, as the shell makes it for ``<(command)``."""
    reading, writing = os.pipe()
    os.write(writing, text)
    os.close(writing)
    try:
        yield f"/dev/fd/{reading}", reading
    finally:
        os.close(reading)


BY_MAIN = "import ottla.cli; ottla.cli.main()"
BY_TYPER = "from ottla.cli.commands import app; app(prog_name='ottla')"


def told(by: str, *words: str, text: bytes) -> tuple[int, str]:
    """The exit code and the words on stderr of a command; ``PIPE`` stands for a pipe with the text."""
    with piped(text) as (path, descriptor):
        done = subprocess.run(
            [sys.executable, "-c", by, *(word.replace("PIPE", path) for word in words)],
            pass_fds=[descriptor],
            env=ENVIRONMENT,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        return done.returncode, done.stderr.replace(path, "PIPE")


@pytest.mark.parametrize(
    "line",
    [
        "produce t --command-config PIPE --bootstrap HERE --connect-timeout 1",
        "consume t --command-config PIPE --bootstrap HERE --connect-timeout 1",
        "proxy --upstream HERE --listen 127.0.0.1:0 --upstream-config PIPE --connect-timeout 1",
        "proxy --listen 127.0.0.1:0",
        "broker --listen 127.0.0.1:0 --name x",
    ],
)
def test_an_error_of_a_command_is_printed_and_the_command_does_not_run_again(line: str) -> None:
    bad = b"security.protocol=SSL\nx=\\u00zz\n"
    with socket.create_server(("127.0.0.1", 0)) as here:
        words = line.replace("HERE", f"127.0.0.1:{here.getsockname()[1]}").split()
        code, said = told(BY_MAIN, *words, text=bad)
        here.setblocking(False)
        with pytest.raises(BlockingIOError):  # a second run would find the pipe empty, and connect without TLS
            here.accept()
    assert code == 2
    if line.startswith("proxy"):  # most of its options may also come from a file
        assert said.startswith("ottla: --upstream")
    else:
        assert "Usage: ottla" in said and "Invalid value" in said
    assert (code, said) == told(BY_TYPER, *words, text=bad)
