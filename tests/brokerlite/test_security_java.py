"""Apache Kafka's own tools, in Java, at a broker whose clients authenticate."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from ottla.testing import Broker
from tests import kafka, tls
from tests.patience import PROGRAM

pytestmark = pytest.mark.slow  # each tool is a virtual machine

LOGINS = {"PLAIN": "plain.PlainLoginModule", "SCRAM-SHA-256": "scram.ScramLoginModule"}


@pytest.fixture(scope="module")
def ca() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def broker(ca: trustme.CA) -> Iterator[Broker]:
    with Broker(users={"alice": "secret"}, tls=tls.serving(ca, "127.0.0.1")) as broker:
        broker.create_topic("t")
        yield broker


def run(broker: Broker, ca: trustme.CA, home: Path, tool: str, mechanism: str, password: str, *args: str) -> str:
    """Run a tool with a user and a password; return its output."""
    (home / "ca.pem").write_bytes(ca.cert_pem.bytes())
    module = f"org.apache.kafka.common.security.{LOGINS[mechanism]}"
    (home / "client.properties").write_text(
        f"security.protocol=SASL_SSL\nsasl.mechanism={mechanism}\n"
        f'sasl.jaas.config={module} required username="alice" password="{password}";\n'
        f"ssl.truststore.type=PEM\nssl.truststore.location={home}/ca.pem\n"
        "default.api.timeout.ms=20000\nrequest.timeout.ms=10000\n"
    )
    given = ("--bootstrap-server", broker.bootstrap, "--command-config", str(home / "client.properties"), *args)
    done = subprocess.run(kafka.java(tool, *given), capture_output=True, text=True, timeout=PROGRAM)
    return done.stdout + done.stderr


TOPICS, CONFIGS = "org.apache.kafka.tools.TopicCommand", "kafka.admin.ConfigCommand"


@pytest.mark.parametrize("mechanism", LOGINS)
def test_java_logs_in_or_hears_why_not(broker: Broker, ca: trustme.CA, tmp_path: Path, mechanism: str) -> None:
    assert run(broker, ca, tmp_path, TOPICS, mechanism, "secret", "--list").split() == ["t"]
    refused = run(broker, ca, tmp_path, TOPICS, mechanism, "wrong", "--list")
    said = "Invalid username or password" if mechanism == "PLAIN" else "invalid credentials with SASL mechanism"
    assert "SaslAuthenticationException: Authentication failed" in refused and said in refused


def test_javas_tool_adds_and_lists_users(broker: Broker, ca: trustme.CA, tmp_path: Path) -> None:
    users = ("--entity-type", "users", "--entity-name", "bob")
    run(
        *(broker, ca, tmp_path, CONFIGS, "PLAIN", "secret", "--alter"),
        *("--add-config", "SCRAM-SHA-512=[iterations=8192,password=of-bob]", *users),
    )
    assert broker._running is not None
    table = broker._running._core.users.table
    assert table.any_credential("bob").accepts("of-bob")
    assert table.credentials("bob")["SCRAM-SHA-512"].iterations == 8192
