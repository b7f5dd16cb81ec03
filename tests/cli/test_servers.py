"""`ottla broker` and `ottla proxy` as processes: their first line, their health endpoints, their end."""

import json
import os
import signal
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.testing import Broker
from tests.announcing import alone
from tests.cli import program
from tests.cli.program import running
from tests.kafka import free_ports
from tests.patience import HUNG

pytestmark = pytest.mark.slow  # a process or two for each test

ANYWHERE = ("--listen", "127.0.0.1:0", "--json")


def get(address: str, path: str) -> int:
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=HUNG) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def test_the_broker_says_where_it_listens_and_answers_probes(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with running("broker", *ANYWHERE, "--data", data, "--node-id", "7", "--health", "127.0.0.1:0") as broker:
        facts = broker.facts()
        assert (facts["event"], facts["kind"], facts["node_id"]) == ("listening", "broker", 7)
        assert Path(facts["data"]) == data
        assert get(facts["health"], "/health") == get(facts["health"], "/ready") == 200
        assert get(facts["health"], "/else") == 404
        done = program.run("topics", "create", "t", "--bootstrap", facts["bootstrap"], "--json")
        assert [p["leader"] for p in json.loads(done.stdout)["partitions"]] == [7]


def test_the_proxy_says_where_it_listens_and_answers_probes(ottla_broker: Broker) -> None:
    where = ("--upstream", ottla_broker.bootstrap, "--topic", "t=rewrite", "--health", "127.0.0.1:0")
    with running("proxy", *ANYWHERE, *where) as proxy:
        facts = proxy.facts()
        assert (facts["event"], facts["kind"], facts["upstream"]) == ("listening", "proxy", ottla_broker.bootstrap)
        assert get(facts["health"], "/health") == get(facts["health"], "/ready") == 200
        assert program.run("topics", "create", "t", "--bootstrap", facts["bootstrap"]).returncode == 0
        assert (
            program.run("produce", "t", "-b", facts["bootstrap"], "--key-separator", ":", given=b"k:v").returncode == 0
        )
        assert program.run("consume", "t", "-b", ottla_broker.bootstrap, "--until-end").stdout == b"v\n"


def test_the_proxy_takes_its_options_from_a_file(ottla_broker: Broker, tmp_path: Path) -> None:
    file = tmp_path / "proxy.toml"
    file.write_text(f'upstream = "{ottla_broker.bootstrap}"\nlisten = "127.0.0.1:0"\n[topics]\nflights = "rewrite"\n')
    with running("proxy", "--config", file, "--json") as proxy:
        assert proxy.facts()["upstream"] == ottla_broker.bootstrap


def test_the_first_line_is_for_people_unless_json_is_asked_for() -> None:
    with running("broker", "--listen", "127.0.0.1:0") as broker:
        assert broker.line().startswith(b"broker listens: bootstrap 127.0.0.1:")


def test_the_broker_says_where_it_sends_clients_and_what_a_power_cut_takes(tmp_path: Path) -> None:
    options = ("--advertise", "kafka.example:9092", "--data", tmp_path / "data", "--sync", "always")
    with running("broker", *ANYWHERE, *options) as broker:
        facts = broker.facts()
        assert (facts["advertised"], facts["sync"], facts["listen"]) == ("kafka.example:9092", "always", None)
    with running("broker", *ANYWHERE) as broker:
        facts = broker.facts()
        assert (facts["advertised"], facts["sync"]) == (None, None), "a temporary folder is never synced"


def test_logs_are_json_if_asked_for(tmp_path: Path) -> None:
    with running("broker", *ANYWHERE, "--data", tmp_path / "data", "--log-format", "json") as broker:
        broker.facts()
        _, err, _ = broker.end(signal.SIGTERM)
    lines = [json.loads(line) for line in err.splitlines()]
    assert {"time", "level", "logger", "message"} <= lines[0].keys()
    assert "ready" in {line["message"] for line in lines}


@pytest.fixture(params=["broker", "proxy"])
def command(request: pytest.FixtureRequest, ottla_broker: Broker) -> tuple[str, ...]:
    return ("broker",) if request.param == "broker" else ("proxy", "--upstream", ottla_broker.bootstrap)


def test_a_port_in_use_is_code_2_and_names_the_address(command: tuple[str, ...]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        done = program.run(*command, "--listen", address, "--log-level", "error")
    assert (done.returncode, done.stdout) == (2, b""), done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith(b"ottla: ") and address.encode() in last and b"in use" in last
    assert b"Traceback" not in done.stderr


def test_a_data_folder_of_something_else_is_code_2(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    done = program.run("broker", *ANYWHERE, "--data", tmp_path, "--log-level", "error")
    assert (done.returncode, done.stderr.count(b"\n")) == (2, 1), done.stderr
    assert str(tmp_path).encode() in done.stderr
    assert os.listdir(tmp_path) == ["thesis.txt"]


def test_a_proxy_without_upstream_is_code_3_within_its_deadline() -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    done = program.run("proxy", *ANYWHERE, "--upstream", address, "--connect-timeout", "0.5", "--log-level", "error")
    assert (done.returncode, done.stderr.count(b"\n")) == (3, 1), done.stderr
    assert address.encode() in done.stderr


def test_the_proxys_file_may_name_what_secures_upstream(tmp_path: Path) -> None:
    config = tmp_path / "proxy.toml"
    config.write_text('upstream = "127.0.0.1:1"\nlisten = "127.0.0.1:0"\nupstream-config = "gone.properties"\n')
    done = program.run("proxy", "--config", str(config), "--log-level", "error")
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"gone.properties" in done.stderr


@pytest.mark.parametrize(
    ("number", "expected"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 0), (signal.SIGHUP, 0)],
    ids=["Ctrl-C", "SIGTERM", "SIGHUP"],
)
def test_a_signal_drains_a_server_that_has_clients(
    command: tuple[str, ...], number: signal.Signals, expected: int
) -> None:
    with running(*command, *ANYWHERE, "--log-level", "warning") as server:
        bootstrap = server.facts()["bootstrap"]
        assert program.run("topics", "create", "t", "-b", bootstrap).returncode == 0
        with running("consume", "t", "--bootstrap", bootstrap) as consume:
            assert program.run("produce", "t", "--bootstrap", bootstrap, given=b"v\n").returncode == 0
            assert consume.line() == b"v"
            # The broker now delays its answer to the consumer's Fetch.
            code, err, seconds = server.end(number)
    assert (code, err) == (expected, b"")
    assert seconds < program.PROMPT


def test_a_terminal_that_is_closed_leaves_no_temporary_folder(tmp_path: Path) -> None:
    with running("broker", *ANYWHERE, env={"TMPDIR": str(tmp_path)}) as broker:
        broker.facts()
        assert os.listdir(tmp_path)
        code, err, _ = broker.end(signal.SIGHUP)
    assert (code, os.listdir(tmp_path)) == (0, [])
    assert b"stopped" in err


def test_a_server_that_was_started_by_nohup_survives_its_terminal() -> None:
    with running("broker", *ANYWHERE, before=("nohup",)) as broker:
        bootstrap = broker.facts()["bootstrap"]
        broker.process.send_signal(signal.SIGHUP)
        assert program.run("topics", "create", "t", "-b", bootstrap).returncode == 0
        assert broker.end(signal.SIGTERM)[0] == 0


@pytest.fixture
def announced_broker() -> Iterator[tuple[program.Program, str]]:
    name = f"ottla-cli-{os.getpid()}"
    announcing = ("--announce", "--name", name, "--log-level", "warning")
    with alone(), running("broker", *ANYWHERE, *announcing) as broker:
        assert broker.facts()["announced"] == f"zeroconf://{name}"
        yield broker, name


def test_an_announced_broker_is_found_by_name_and_gone_after_its_end(
    announced_broker: tuple[program.Program, str],
) -> None:
    broker, name = announced_broker
    assert program.run("topics", "create", "t", "-b", f"zeroconf://{name}").returncode == 0
    with running("proxy", *ANYWHERE, "--upstream", f"zeroconf://{name}", "--announce", "--name", f"{name}-p") as proxy:
        assert proxy.facts()["announced"] == f"zeroconf://{name}-p"
        assert program.run("topics", "list", "-b", f"zeroconf://{name}-p").stdout == b"t\n"
        assert proxy.end(signal.SIGTERM)[0] == 0
    code, err, seconds = broker.end(signal.SIGTERM)
    assert (code, err) == (0, b"")
    assert seconds < program.PROMPT
    done = program.run("topics", "list", "-b", f"zeroconf://{name}", "--connect-timeout", "1")
    assert (done.returncode, done.stdout) == (3, b"")
    assert name.encode() in done.stderr


def test_a_name_that_is_taken_is_code_2(announced_broker: tuple[program.Program, str]) -> None:
    _, name = announced_broker
    done = program.run("broker", *ANYWHERE, "--announce", "--name", name, "--log-level", "error")
    assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (2, b"", 1), done.stderr
    assert name.encode() in done.stderr
