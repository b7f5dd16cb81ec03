"""Clients of other languages log in to brokerlite, to the proxy, and to brokerlite through a relay, by each mechanism.

With a wrong password each of them reports that, in its own words.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme

import ottla
from ottla.proxy.listeners import ClientMode
from ottla.sasl_server.settings import SaslSettings
from ottla.testing import Broker
from tests import tls
from tests.interop.lines import Message
from tests.interop.peers import AIOKAFKA, FRANZ, JAVA, KAFKAJS, LIBRDKAFKA, SARAMA, Client, PeerFailed
from tests.patience import longer_and_longer
from tests.proxy.running import proxied
from tests.proxy.secured import MECHANISMS, rules, user_file, with_passwords

pytestmark = [
    pytest.mark.slow,
    pytest.mark.deep,
]  # test_security.py has a login of each kind by librdkafka and aiokafka

USERS = {"alice": "correct horse", "proxy": "secret-of-the-proxy"}
_JAAS = "org.apache.kafka.common.security."
_LOGIN_MODULES = {"PLAIN": "plain.PlainLoginModule"} | dict.fromkeys(MECHANISMS[1:], "scram.ScramLoginModule")

Config = dict[str, str]


def java(mechanism: str, password: str) -> Config:
    login = f'{_JAAS}{_LOGIN_MODULES[mechanism]} required username="alice" password="{password}";'
    return {"sasl.mechanism": mechanism, "sasl.jaas.config": login}


def named(mechanism: str, password: str) -> Config:
    return {"sasl.mechanism": mechanism, "sasl.username": "alice", "sasl.password": password}


def aiokafka(mechanism: str, password: str) -> Config:
    return {"sasl_mechanism": mechanism, "sasl_plain_username": "alice", "sasl_plain_password": password}


CLIENTS = (JAVA, LIBRDKAFKA, AIOKAFKA, KAFKAJS, SARAMA, FRANZ)
_LOGINS: Mapping[str, Callable[[str, str], Config]] = {"java": java, "aiokafka": aiokafka}
_SOON: Mapping[str, Config] = {
    "kafkajs": {"retries": "1"},
    "sarama": {"retries": "1"},
}
"""Settings with which a client gives up soon; the others do so by themselves."""
REFUSED = {
    "java": "SaslAuthenticationException",
    "librdkafka": "SASL authentication error",
    "aiokafka": "SaslAuthenticationFailed",
    "kafkajs": "SASL",
    "sarama": "SASL Authentication failed",
    "franz-go": "SASL_AUTHENTICATION_FAILED",
}
PLACES = ("broker", "proxy", "relay")


@contextmanager
def serving(place: str, home: Path, ca: trustme.CA | None) -> Iterator[str]:
    """A server in which alice can log in; yields its address."""
    secure: dict[str, Any] = {} if ca is None else {"protocol": "SASL_SSL", "tls": tls.serving(ca, "127.0.0.1")}
    with Broker(users=USERS, tls=secure.get("tls") if place == "broker" else None) as broker:
        broker.create_topic("t", 1)
        if place == "broker":
            yield broker.bootstrap
            return
        if place == "relay":
            sasl = SaslSettings(mechanisms=MECHANISMS, relayed=True)
            options: dict[str, Any] = {"listeners": (with_passwords(mode=ClientMode.RELAY, sasl=sasl, **secure),)}
        else:
            options = {
                "listeners": (with_passwords(**secure),),
                "acls": rules("allow alice All Topic t", "allow alice IdempotentWrite Cluster kafka-cluster"),
                "users": user_file(home, USERS),
            }
        with proxied(broker.bootstrap, sasl=ottla.Plain("proxy", USERS["proxy"]), **options) as proxy:
            yield proxy.bootstrap


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
def test_each_client_logs_in_by_each_mechanism_or_hears_why_not(place: str, secure: bool, tmp_path: Path) -> None:
    ca = trustme.CA() if secure else None
    transport = {"security.protocol": "SASL_SSL" if secure else "SASL_PLAINTEXT"}
    if ca is not None:
        ca.cert_pem.write_to_path(tmp_path / "ca.pem")
    with serving(place, tmp_path / "users", ca) as bootstrap:
        for client in CLIENTS:
            login = _LOGINS.get(client.name, named)
            for mechanism in MECHANISMS if client is not SARAMA else ("PLAIN",):
                config = _trusting(client, tmp_path) if secure else {}
                if client not in (KAFKAJS, SARAMA, FRANZ):
                    config |= transport
                try:
                    [outcome] = client.produce(bootstrap, [_MESSAGE], config | login(mechanism, USERS["alice"]))
                except PeerFailed as failed:
                    raise AssertionError(f"{client} by {mechanism}") from failed
                assert not outcome.error, f"{client} by {mechanism}: {outcome}"
                wrong = config | login(mechanism, "wrong") | _SOON.get(client.name, {})
                if client is LIBRDKAFKA:
                    said = _refused_in_time(client, bootstrap, wrong)
                else:
                    said = _refused(client, bootstrap, wrong)
                assert REFUSED[client.name] in said, f"{client} by {mechanism}: {said}"


_MESSAGE = Message("t", b"key", b"value")


def _trusting(client: Client, home: Path) -> Config:
    path = str(home / "ca.pem")
    if client is JAVA:
        return {"ssl.truststore.type": "PEM", "ssl.truststore.location": path}
    return {"ssl.ca.location": path}


def _refused_in_time(client: Client, bootstrap: str, config: Config) -> str:
    """The output of a client that gives up when its time is over, even if it has no answer to its login yet."""
    for seconds in longer_and_longer(3.0):
        said = _refused(client, bootstrap, config | {"message.timeout.ms": str(round(1000 * seconds))})
        if REFUSED[client.name] in said:
            break
    return said


def _refused(client: Client, bootstrap: str, config: Config) -> str:
    """The output of a client that cannot log in."""
    with client.producing(bootstrap, config) as producer:
        try:
            producer.send(_MESSAGE)
            outcomes = producer.finish()
        except PeerFailed as failed:
            return str(failed)
        return f"{outcomes} {producer.said()}"
