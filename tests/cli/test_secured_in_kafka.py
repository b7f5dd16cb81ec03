"""Commands against Apache Kafka with TLS and SASL, and with a file that Kafka's own tools also accept."""

import json
from pathlib import Path

import pytest
import trustme

from tests.cli import program
from tests.kafka import ApacheKafka
from tests.sdk.test_sasl_in_kafka import SECRET, ca, kafka  # noqa: F401 # fixtures

pytestmark = pytest.mark.slow


@pytest.fixture
def file(tmp_path: Path, ca: trustme.CA) -> Path:  # noqa: F811
    (tmp_path / "ca.pem").write_bytes(ca.cert_pem.bytes())
    found = tmp_path / "client.properties"
    found.write_text(
        "security.protocol=SASL_SSL\nssl.truststore.type=PEM\n"
        f"ssl.truststore.location={tmp_path / 'ca.pem'}\n"
        "sasl.mechanism=SCRAM-SHA-512\n"
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\\n"
        f'    username="alice" \\\n    password="{SECRET}";\n'
    )
    return found


def test_the_same_file_serves_kafkas_tools_and_ours(kafka: ApacheKafka, file: Path) -> None:  # noqa: F811
    address = kafka.listener("BOTH")
    theirs = ("--bootstrap-server", address, "--command-config", str(file))
    kafka.run("org.apache.kafka.tools.TopicCommand", *theirs, "--create", "--topic", "cli", "--partitions", "1")
    ours = ("--bootstrap", address, "--command-config", file)
    assert program.run("produce", "cli", *ours, given=b"a\nb\n").returncode == 0
    consumed = program.run("consume", "cli", "--until-end", "--json", "--group", "g", *ours)
    assert (consumed.returncode, consumed.stderr) == (0, b"")
    assert [json.loads(line)["value"] for line in consumed.stdout.splitlines()] == ["a", "b"]


def test_a_wrong_password_is_one_line(kafka: ApacheKafka, file: Path) -> None:  # noqa: F811
    file.write_text(file.read_text().replace(SECRET, "another-secret"))
    ended = program.run("topics", "list", "--bootstrap", kafka.listener("BOTH"), "--command-config", file)
    assert (ended.returncode, ended.stdout, ended.stderr.count(b"\n")) == (1, b"", 1)
    assert b"user 'alice' by SCRAM-SHA-512 is refused" in ended.stderr
    assert b"another-secret" not in ended.stderr
