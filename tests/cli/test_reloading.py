"""A server reads its configuration file again, and a file can be checked without a server."""

import json
import signal
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from ottla.testing import Broker
from tests.cli import program
from tests.cli.program import running
from tests.kafka import free_ports
from tests.patience import HUNG

pytestmark = pytest.mark.slow  # a process or two for each test


def produce_with_key(bootstrap: str, value: str) -> int:
    given = f"k:{value}\n".encode()
    return program.run("produce", "t", "-b", bootstrap, "--key-separator", ":", given=given).returncode


@pytest.fixture
def proxy_file(ottla_broker: Broker, tmp_path: Path) -> Path:
    file = tmp_path / "proxy.toml"
    file.write_text(
        f'upstream = "{ottla_broker.bootstrap}"\nlisten = "127.0.0.1:0"\nhealth = "127.0.0.1:0"\nlog-level = "error"\n'
    )
    return file


def metric(health: str, line: str) -> str | None:
    """The value of one line of ``/metrics``."""
    with urllib.request.urlopen(f"http://{health}/metrics", timeout=HUNG) as page:
        lines = page.read().decode().splitlines()
    return next((each.rpartition(" ")[2] for each in lines if each.startswith(line)), None)


def test_a_rule_applies_from_a_reload_on(proxy_file: Path) -> None:
    with running("proxy", "--config", proxy_file, "--json") as proxy:
        facts = proxy.facts()
        rewritten = 'ottla_proxy_records_total{mode="rewrite",topic="t"}'
        assert program.run("topics", "create", "t", "-b", facts["bootstrap"]).returncode == 0
        assert produce_with_key(facts["bootstrap"], "before") == 0
        assert metric(facts["health"], rewritten) is None
        proxy_file.write_text(proxy_file.read_text() + 'max-connections = 5\n[topics]\nt = "rewrite"\n')
        done = program.run("proxy", "reload", facts["health"], "--json")
        assert json.loads(done.stdout) == {
            "applied": ["topics"],
            "needs_restart": ["max-connections"],
            "warnings": [],
        }, done.stderr
        assert produce_with_key(facts["bootstrap"], "after") == 0
        assert metric(facts["health"], rewritten) == "1.0"
        told = program.run("proxy", "reload", facts["health"])
        assert told.stdout == b"applied: nothing has changed\nneeds a restart: max-connections\n"


def test_a_topic_leaves_fan_out_only_to_be_rewritten(proxy_file: Path) -> None:
    before = proxy_file.read_text()
    proxy_file.write_text(before + '[topics]\nt = "fan-out"\n')
    assert program.run("proxy", "check", proxy_file).returncode == 0
    with running("proxy", "--config", proxy_file, "--json") as proxy:
        facts = proxy.facts()
        assert program.run("topics", "create", "t", "-b", facts["bootstrap"]).returncode == 0
        assert produce_with_key(facts["bootstrap"], "one") == 0
        proxy_file.write_text(before)
        done = program.run("proxy", "reload", facts["health"])
        assert done.returncode == 2 and b"may only change to rewrite or copy: t;" in done.stderr, done.stderr
        assert produce_with_key(facts["bootstrap"], "two") == 0
        assert metric(facts["health"], 'ottla_proxy_records_total{mode="fan-out",topic="t"}') == "2.0"
        proxy_file.write_text(before + '[topics]\nt = "rewrite"\n')
        assert program.run("proxy", "reload", facts["health"]).returncode == 0
        assert produce_with_key(facts["bootstrap"], "three") == 0
        assert metric(facts["health"], 'ottla_proxy_records_total{mode="fan-out",topic="t"}') == "2.0"
        assert metric(facts["health"], 'ottla_proxy_records_total{mode="rewrite",topic="t"}') == "1.0"


def test_a_reload_begins_to_copy_if_the_copy_has_a_rule(proxy_file: Path) -> None:
    before = proxy_file.read_text() + '[topics]\nt = "rewrite"\n'
    proxy_file.write_text(before)
    with running("proxy", "--config", proxy_file, "--json") as proxy:
        facts = proxy.facts()
        for topic in ("t", "archive"):
            assert program.run("topics", "create", topic, "-b", facts["bootstrap"]).returncode == 0
        proxy_file.write_text(before.replace('"rewrite"', '"copy:archive"'))
        done = program.run("proxy", "reload", facts["health"])
        assert done.returncode == 2 and b"needs a rule of its own: add 'archive=rewrite'" in done.stderr, done.stderr
        proxy_file.write_text(before.replace('"rewrite"', '"copy:archive"') + 'archive = "rewrite"\n')
        assert program.run("proxy", "reload", facts["health"]).returncode == 0
        assert produce_with_key(facts["bootstrap"], "one") == 0
        assert metric(facts["health"], 'ottla_proxy_copied_records_total{target="archive",topic="t"}') == "1.0"
        read = program.run("consume", "archive", "--until-end", "-b", facts["bootstrap"])
        assert read.returncode == 0 and b"one" in read.stdout


def test_a_file_that_cannot_be_used_changes_nothing(proxy_file: Path) -> None:
    with running("proxy", "--config", proxy_file, "--json") as proxy:
        facts = proxy.facts()
        proxy_file.write_text("upstream = 3")
        done = program.run("proxy", "reload", facts["health"])
        assert (done.returncode, done.stdout) == (2, b"")
        assert b"not reloaded, the server continues as before: " in done.stderr and b"must be a text" in done.stderr
        proxy_file.unlink()
        assert program.run("proxy", "reload", facts["health"]).returncode == 2
        assert program.run("topics", "create", "t", "-b", facts["bootstrap"]).returncode == 0
        code, err, _ = proxy.end(signal.SIGTERM)
    assert code == 0
    assert err.count(b"configuration not reloaded, the server keeps the previous one") == 2


def test_a_reload_switches_the_access_log(proxy_file: Path, tmp_path: Path) -> None:
    before, log = proxy_file.read_text(), tmp_path / "access"
    with running("proxy", "--config", proxy_file, "--json") as proxy:
        facts = proxy.facts()
        for written in (f'access-log = "{log}"\n', f'access-log = "{tmp_path}"\n', "access-log = false\n"):
            assert program.run("topics", "list", "-b", facts["bootstrap"]).returncode == 0
            proxy_file.write_text(before + written)
            done = program.run("proxy", "reload", facts["health"], "--json")
            if str(tmp_path) + '"' in written:
                assert done.returncode == 2 and b"access-log: cannot write" in done.stderr
            else:
                assert json.loads(done.stdout) == {"applied": ["access-log"], "needs_restart": [], "warnings": []}, (
                    done.stderr
                )
        assert program.run("topics", "list", "-b", facts["bootstrap"]).returncode == 0
        _, err, _ = proxy.end(signal.SIGTERM)
    assert b"changed setting cannot be used" in err
    clients = [json.loads(line)["request"] for line in log.read_text().splitlines()]
    assert clients.count("ApiVersions") == 2, "of the two commands while it was on"


def test_the_broker_has_an_access_log_too(tmp_path: Path) -> None:
    log = tmp_path / "access"
    with running("broker", "--listen", "127.0.0.1:0", "--json", "--access-log", log) as broker:
        assert program.run("topics", "create", "t", "-b", broker.facts()["bootstrap"]).returncode == 0
        broker.end(signal.SIGTERM)
    assert "CreateTopics" in {json.loads(line)["request"] for line in log.read_text().splitlines()}


def test_the_report_is_shown(proxy_file: Path) -> None:
    options = ("--report", "127.0.0.1:0", "--report-keys", "--topic", "t=observe::1")
    with running("proxy", "--config", proxy_file, "--json", *options) as proxy:
        facts = proxy.facts()
        assert program.run("topics", "create", "t", "-b", facts["bootstrap"]).returncode == 0
        assert b"No records of topics with a rule yet" in program.run("proxy", "report", facts["report"]).stdout
        assert produce_with_key(facts["bootstrap"], "value") == 0
        assert produce_with_key(facts["bootstrap"], "value") == 0
        shown = program.run("proxy", "report", facts["report"]).stdout.decode()
        told = json.loads(program.run("proxy", "report", facts["report"], "--json").stdout)
    assert "t: observe, murmur2 over 1 partitions" in shown and "records with a key are in its partition" in shown
    assert told["topics"][0]["clients"][0]["misplaced"] == 0
    gone = program.run("proxy", "report", facts["report"])
    assert (gone.returncode, gone.stdout) == (3, b"")


def test_a_hang_up_reloads_a_server_that_has_a_file(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("listeners=PLAINTEXT://127.0.0.1:0\nlog-level=error\n")
    with running("broker", "--config", file, "--json", "--health", "127.0.0.1:0") as broker:
        facts = broker.facts()
        file.write_text("listeners=PLAINTEXT://127.0.0.1:0\nlog-level=info\nnum.partitions=3\n")
        broker.process.send_signal(signal.SIGHUP)
        # The answer to this request is behind the signal: it was sent later, to the same loop.
        done = program.run("broker", "reload", facts["health"], "--json")
        assert json.loads(done.stdout)["needs_restart"] == ["partitions"]
        code, err, _ = broker.end(signal.SIGTERM)
    assert code == 0
    assert b"applied=log-level" in err, "the signal was first"
    assert b"stopped" in err, "info is printed by now"


def test_only_a_post_reloads_and_only_with_a_file() -> None:
    with running("broker", "--listen", "127.0.0.1:0", "--json", "--health", "127.0.0.1:0") as broker:
        health = broker.facts()["health"]
        with pytest.raises(urllib.error.HTTPError, match="405") as refused:
            urllib.request.urlopen(f"http://{health}/reload", timeout=HUNG)
        refused.value.close()
        done = program.run("broker", "reload", health)
    assert (done.returncode, done.stdout) == (1, b"")
    assert done.stderr.endswith(b"answers 409: the server was started without --config\n")


def test_a_server_that_does_not_answer_is_code_3() -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    done = program.run("proxy", "reload", address)
    assert (done.returncode, done.stdout) == (3, b"")
    assert f"no server answers at {address}".encode() in done.stderr


@pytest.mark.parametrize(
    ("kind", "text", "says"),
    [
        ("broker", 'listen = "127.0.0.1:9092"\nlog-level = "info"\n', None),
        ("broker", "num.partitons = 3\n", b"do you mean num.partitions?"),
        ("broker", 'log-level = "loud"\n', b"log-level is 'loud'; it must be debug, info, warning or error"),
        ("proxy", 'upstream = "kafka:9092"\n[topics]\n"a*" = "rewrite"\n', None),
        ("proxy", 'upstream = "kafka:9092"\n[topics]\na = "copy:b"\nb = "rewrite"\n', None),
        ("proxy", 'upstream = "kafka:9092"\n[topics]\na = "copy:b"\n', b"needs a rule of its own: add 'b=rewrite'"),
        ("proxy", 'upstream = "kafka:9092"\n[topics]\na = "copy:b"\nb = "copy:a"\n', b"copies are not copied"),
        ("proxy", 'upstream = "kafka:9092"\nmax-connection = 3\n', b"do you mean max-connections?"),
        ("proxy", 'upstream = "kafka:9092"\nupstream-config = "gone.properties"\n', b"gone.properties"),
    ],
)
def test_a_file_is_checked_without_a_server(tmp_path: Path, kind: str, text: str, says: bytes | None) -> None:
    file = tmp_path / "server.toml"
    file.write_text(text)
    done = program.run(kind, "check", file)
    if says is None:
        assert (done.returncode, done.stdout) == (0, f"{file} can be used\n".encode()), done.stderr
    else:
        assert (done.returncode, done.stdout) == (2, b"") and says in done.stderr


@pytest.mark.parametrize(("more", "is_told"), [("", True), ('super-users = ["User:admin"]\n', False)])
def test_a_broker_on_which_nobody_can_add_the_first_acl_is_told(tmp_path: Path, more: str, is_told: bool) -> None:
    file = tmp_path / "server.toml"
    file.write_text(f"acls = true\n{more}")
    done = program.run("broker", "check", file)
    assert done.returncode == 0 and (b"acls without super-users" in done.stderr) == is_told, done.stderr


def test_a_hang_up_while_the_proxy_starts_is_not_lost(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    file = tmp_path / "proxy.toml"
    head = (
        f'upstream = "{address}"\nlisten = "127.0.0.1:0"\nhealth = "127.0.0.1:0"\nconnect-timeout = {HUNG}\n[topics]\n'
    )
    file.write_text(head + 't = "rewrite"\n')
    with running("proxy", "--config", file, "--json") as proxy:
        assert proxy.process.stderr is not None
        assert b"no state directory" in proxy.process.stderr.readline(), "it has read the file, and starts"
        file.write_text(head + 't = "observe"\n')
        proxy.process.send_signal(signal.SIGHUP)
        with running("broker", "--listen", address, "--json") as broker:
            broker.facts()
            health = proxy.facts()["health"]
            done = program.run("proxy", "reload", health, "--json")
            assert json.loads(done.stdout) == {"applied": [], "needs_restart": [], "warnings": []}, done.stderr
            _, err, _ = proxy.end(signal.SIGTERM)
    assert b"applied=topics" in err


def test_a_file_that_the_configuration_names_may_be_gone_at_a_reload(proxy_file: Path, tmp_path: Path) -> None:
    with running("proxy", "--config", proxy_file, "--json") as proxy:
        health = proxy.facts()["health"]
        proxy_file.write_text(f'upstream-config = "{tmp_path / "gone.properties"}"\n' + proxy_file.read_text())
        done = program.run("proxy", "reload", health)
        assert (done.returncode, done.stdout) == (2, b"") and b"cannot read" in done.stderr, done.stderr


def test_what_a_file_makes_the_broker_say_has_the_format_of_its_log(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("listeners=PLAINTEXT://127.0.0.1:0\nnum.io.threads=8\nlog-format=json\n")
    with running("broker", "--config", file, "--json") as broker:
        broker.facts()
        _, err, _ = broker.end(signal.SIGTERM)
    assert json.loads(err.splitlines()[0])["names"] == "num.io.threads"
