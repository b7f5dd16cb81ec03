"""`ottla acls`, as processes."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla import AclBinding, Plain
from ottla.brokerlite.config import BrokerConfig, Sync
from ottla.sync import connect
from ottla.testing import Broker
from tests.cli.program import Program, run
from tests.cli.test_commands import ottla

pytestmark = pytest.mark.slow  # a process or two for each test


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    config = BrokerConfig(port=0, data=tmp_path / "data", sync=Sync.NEVER, acls=True, super_users=("User:ANONYMOUS",))
    with Broker(config) as running:
        yield running


def listed(broker: Broker, *arguments: str) -> list[tuple[str, str, str, str, bool, bool]]:
    code, out, err = ottla(broker, "acls", *arguments, "--json")
    assert (code, err) == (0, "")
    fields = ("principal", "operation", "resource_type", "name", "prefixed", "deny")
    return [tuple(each[field] for field in fields) for each in json.loads(out)]


def test_acls_are_added_listed_and_deleted(broker: Broker) -> None:
    read = ("User:alice", "Read", "Topic", "orders", False, False)
    group = ("User:alice", "Read", "Group", "billing", False, False)
    assert listed(broker, "add", "User:alice", "--operation", "read", "--topic", "orders", "--group", "billing") == [
        read,
        group,
    ]
    denied = ("User:*", "All", "Topic", "secret", True, True)
    adding = ("add", "User:*", "--operation", "All", "--topic", "secret", "--prefixed", "--deny")
    assert listed(broker, *adding) == [denied]
    assert listed(broker, "list") == [group, read, denied]
    assert listed(broker, "list", "--topic", "secret-1", "--matching") == [denied]
    assert listed(broker, "list", "--topic", "secret-1") == []
    code, out, _ = ottla(broker, "acls", "list", "--principal", "User:*")
    assert code == 0 and "secret…" in out and "not" in out
    assert listed(broker, "delete", "--principal", "User:alice", "--group", "billing") == [group]
    assert listed(broker, "delete", "--all") == [read, denied]
    assert listed(broker, "list") == []
    nothing = "no ACL matches: ottla acls list shows all\n"
    assert ottla(broker, "acls", "delete", "--all") == (0, "", nothing)
    assert ottla(broker, "acls", "delete", "--all", "--json") == (0, "[]\n", nothing)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("add", "User:a", "--operation", "Read"), "give --topic, --group, --transactional-id or --cluster"),
        (("delete",), "give --principal, resources, or --all alone"),
        (("delete", "--all", "--topic", "t"), "give --principal, resources, or --all alone"),
        (("add", "User:a", "--operation", "Raed", "--topic", "t"), "do you mean 'Read'"),
        (("add", "a", "--operation", "Read", "--topic", "t"), "must be a type and a name, as in User:alice"),
    ],
)
def test_a_mistake_is_named(broker: Broker, arguments: tuple[str, ...], says: str) -> None:
    code, _, err = ottla(broker, "acls", *arguments)
    assert code == 2 and says in " ".join(err.replace("│", " ").split()), err


def test_read_is_enough_to_read_to_the_end(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = BrokerConfig(port=0, data=tmp_path / "data", sync=Sync.NEVER, acls=True, super_users=("User:admin",))
    file = tmp_path / "billing.properties"
    file.write_text("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username=billing\nsasl.password=b\n")
    with Broker(config, users={"admin": "a", "billing": "b"}) as broker:
        with connect(broker.bootstrap, sasl=Plain("admin", "a")) as admin:
            admin.create_topic("orders")
            admin.create_acls([AclBinding("User:billing", "Read", "Topic", "orders")])
            with admin.producer() as producer:
                producer.send("orders", b"hello")
        to = ("--bootstrap", broker.bootstrap, "--command-config", file)
        done = run("consume", "orders", "--until-end", *to)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"hello\n", b"")
        done = run("offsets", "orders", *to, "--json")
        assert (done.returncode, done.stderr) == (0, b"") and b'"offset": 1' in done.stdout
        assert "access denied" not in caplog.text, "the broker's operator would search for an attacker"
        done = run("topics", "describe", "orders", *to)
        assert done.returncode == 0 and b"end offset" in done.stdout
        assert b"settings unknown: they need DescribeConfigs on the topic" in done.stderr
        assert json.loads(run("topics", "describe", "orders", *to, "--json").stdout)["configs"] is None


def test_a_broker_of_the_command_line_applies_acls(tmp_path: Path) -> None:
    options = ("--acls", "--super-user", "User:admin", "--data", tmp_path / "d")
    program = Program(("broker", "--listen", "127.0.0.1:0", "--json", *options))
    bootstrap = json.loads(program.line())["bootstrap"]
    done = run("topics", "create", "t", "--bootstrap", bootstrap)
    assert done.returncode == 1 and b"User:ANONYMOUS may not Create Topic t" in done.stderr
    assert program.end(signal.SIGTERM)[0] == 0
