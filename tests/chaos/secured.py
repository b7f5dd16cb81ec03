"""A secured run: clients, a proxy and the nodes talk SASL_SSL, and both the proxy and the nodes have ACLs.

Rules:
- Each role is a user of the proxy, with no more rights than its load needs. The nodes know the proxy's user alone, and
  it is no super user.
- Sessions are shorter than a run on both sides, so all connections authenticate again under load (KIP-368).
- The witnesses use the nodes' plain listener: they must see the log if the proxy fails. Nodes use it among themselves.
"""

import json
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import trustme
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from tests.chaos.setup import Role, Setup
from tests.kafka import HOST, ApacheKafka
from tests.patience import HUNG
from tests.proxy.secured import user_file
from tests.proxy.storms import port_with_room
from tests.tls import kafka_store, text

LISTENER = "SECURED"
SESSION_MS = 20_000
"""How long a session lasts."""
_PASSWORD = "of-chaos"
_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
_NODES = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    f"listener.name.{LISTENER.lower()}.sasl.enabled.mechanisms": "PLAIN",
    f"listener.name.{LISTENER.lower()}.plain.sasl.jaas.config": f"{_MODULE} required user_proxy='{_PASSWORD}';",
    f"listener.name.{LISTENER.lower()}.plain.connections.max.reauth.ms": str(SESSION_MS),
}
_OF_PROXY = {
    ResourceType.TOPIC: (AclOperation.READ, AclOperation.WRITE),
    ResourceType.GROUP: (AclOperation.READ,),
    ResourceType.TRANSACTIONAL_ID: (AclOperation.WRITE,),
}
_RIGHTS: Mapping[Role, Mapping[str, tuple[str, ...]]] = {
    "producer": {"topic": ("Write",)},
    "consumer": {"topic": ("Read",), "group": ("Read",)},
    "teller": {"topic": ("Read", "Write"), "transactional-id": ("Write",)},
    "transformer": {"topic": ("Read", "Write"), "group": ("Read",), "transactional-id": ("Write",)},
}


class SecuredProxy:
    """A proxy process between the programs and the nodes.

    Args:
        folder: for its files.

    Attributes:
        settings: of the nodes, which have the listener `LISTENER` with SASL_SSL.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._ca = folder, trustme.CA()
        folder.mkdir(parents=True)
        self.settings = _NODES | kafka_store(folder, self._ca, HOST)
        self._process: subprocess.Popen[str] | None = None

    def start(self, kafka: ApacheKafka, setup: Setup, topics: Mapping[str, int]) -> Setup:
        """Start it in front of the nodes, and return the settings of the programs.

        Raises:
            RuntimeError: it does not start, or lets everyone do everything.
        """
        _allow_proxy(kafka.bootstrap)
        bootstrap = f"{HOST}:{port_with_room()}"
        config = self._write_files(kafka, bootstrap, topics, setup.group)
        with (self._folder / "proxy.log").open("wb") as log:
            command = [sys.executable, "-m", "ottla", "proxy", "--config", str(config), "--json"]
            self._process = subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=log)
        assert self._process.stdout is not None
        if not self._process.stdout.readline():
            raise RuntimeError(f"the proxy does not start: {(self._folder / 'proxy.log').read_text()[-2000:]}")
        ca = self._folder / "ca.pem"
        _check_denials(bootstrap, ca, next(iter(topics)))
        return replace(setup, bootstrap=bootstrap, ca=str(ca), password=_PASSWORD)

    def stop(self) -> None:
        """End it in good order.

        Raises:
            RuntimeError: it has ended on its own, or has logged a bug.
        """
        if self._process is None:
            return
        ended = self._process.poll()
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(HUNG)
        log = (self._folder / "proxy.log").read_text()
        if ended is not None or "please report it" in log:
            raise RuntimeError(f"the proxy has failed: {log[-2000:]}")

    def _write_files(self, kafka: ApacheKafka, bootstrap: str, topics: Mapping[str, int], group: str) -> Path:
        its = self._ca.issue_cert(HOST)
        certificate = self._folder / "proxy.pem"
        certificate.write_text(text(its.private_key_pem) + "".join(map(text, its.cert_chain_pems)))
        upstream = self._folder / "upstream.properties"
        upstream.write_text(
            "security.protocol=SASL_SSL\n"
            f"ssl.ca.location={self._folder / 'ca.pem'}\n"
            f"sasl.mechanism=PLAIN\nsasl.username=proxy\nsasl.password={_PASSWORD}\n"
        )
        for each in (certificate, upstream):
            each.chmod(0o600)
        users = user_file(self._folder, dict.fromkeys(_RIGHTS, _PASSWORD))
        names = {"topic": [*topics], "group": [group or "none"], "transactional-id": ["*"]}
        options = {
            "upstream": ",".join(kafka.listener(LISTENER, node.id) for node in kafka.nodes),
            "upstream-config": str(upstream),
            "listeners": f"SASL_SSL://{bootstrap}",
            "ssl.keystore.location": str(certificate),
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "connections.max.reauth.ms": SESSION_MS,
            "users": users,
        }
        lines = [f"{name} = {json.dumps(value)}" for name, value in options.items()]
        for role, rights in _RIGHTS.items():
            for kind, operations in rights.items():
                head = f'[[acls]]\nprincipal = "User:{role}"\nallow = {json.dumps(operations)}'
                lines += [f"{head}\n{kind} = {json.dumps(name)}" for name in names[kind]]
        config = self._folder / "proxy.toml"
        config.write_text("\n".join(lines))
        return config


def _allow_proxy(bootstrap: str) -> None:
    """Give the proxy's user the rights of all roles together at the nodes."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    acls = [
        AclBinding(kind, "*", ResourcePatternType.LITERAL, "User:proxy", "*", operation, AclPermissionType.ALLOW)
        for kind, operations in _OF_PROXY.items()
        for operation in operations
    ]
    for each in admin.create_acls(acls).values():
        each.result(HUNG)


def _check_denials(bootstrap: str, ca: Path, topic: str) -> None:
    """Check that a consumer may not write: a run in which everyone may do everything would prove nothing."""
    errors: list[str] = []
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(ca),
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "consumer",
            "sasl.password": _PASSWORD,
            "log_level": 0,
        }
    )
    try:
        producer.produce(topic, b"denied", on_delivery=lambda error, _: errors.append(str(error)))
        producer.flush(HUNG)
    except KafkaException as error:
        errors.append(str(error))
    if not any("TOPIC_AUTHORIZATION_FAILED" in each or "authorization failed" in each for each in errors):
        raise RuntimeError(f"a consumer may write to {topic}: {errors}")
