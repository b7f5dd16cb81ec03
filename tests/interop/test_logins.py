"""Clients of other languages log in to brokerlite, and to the proxy in each of its modes, by each mechanism.

With a wrong password, token or certificate each of them reports that, in its own words.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from operator import methodcaller
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography.hazmat.primitives.asymmetric import rsa

import ottla
from ottla.brokerlite.config import BrokerConfig
from ottla.listeners import ListenerConfig, SecurityProtocol
from ottla.proxy.listeners import ClientMode
from ottla.sasl_server.settings import OAuthSettings, SaslSettings
from ottla.serve.traffic import REQUESTS
from ottla.subject_mapping import SubjectMapping
from ottla.testing import Broker
from tests import tls
from tests.interop import logins
from tests.interop.lines import Message
from tests.interop.logins import Config
from tests.interop.members import CONSUMER_PROTOCOL, until
from tests.interop.peers import AIOKAFKA, FRANZ, JAVA, KAFKAJS, LIBRDKAFKA, SARAMA, Client, PeerFailed
from tests.interop.transacting import TRANSACTORS
from tests.oidc import Provider
from tests.patience import HUNG, longer_and_longer
from tests.proxy.running import ProxyThread, proxied
from tests.proxy.secured import MECHANISMS, rules, user_file, with_passwords
from tests.scraping import scrape

pytestmark = pytest.mark.slow

USERS = {"alice": "correct horse", "proxy": "secret-of-the-proxy"}
OF_ALICE = ("allow alice All Topic t", "allow alice IdempotentWrite Cluster kafka-cluster")
CLIENTS = (JAVA, LIBRDKAFKA, AIOKAFKA, KAFKAJS, SARAMA, FRANZ)
"""sarama's program has neither tokens nor certificates of its own."""
OTHERS = tuple(each for each in CLIENTS if each is not SARAMA)
HOST = "127.0.0.1"
_MESSAGE = Message("t", b"key", b"value")

REFUSED = {
    "java": "SaslAuthenticationException",
    "librdkafka": "SASL authentication error",
    "aiokafka": "SaslAuthenticationFailed",
    "kafkajs": "SASL",
    "sarama": "SASL Authentication failed",
    "franz-go": "SASL_AUTHENTICATION_FAILED",
}
"""The words of a client whose password is wrong."""


# -- passwords


@contextmanager
def serving(place: str, home: Path, ca: trustme.CA | None) -> Iterator[str]:
    """A server in which alice can log in; yields its address."""
    secure: dict[str, Any] = {} if ca is None else {"protocol": "SASL_SSL", "tls": tls.serving(ca, HOST)}
    within_tls = place in ("broker", "forward")
    with Broker(users=USERS, tls=secure.get("tls") if within_tls else None) as broker:
        broker.create_topic("t", 1)
        if place == "broker":
            yield broker.bootstrap
            return
        options: dict[str, Any]
        if place == "relay":
            sasl = SaslSettings(mechanisms=MECHANISMS, relayed=True)
            options = {"listeners": (with_passwords(mode=ClientMode.RELAY, sasl=sasl, **secure),)}
        elif place == "forward":
            assert ca is not None
            sasl = SaslSettings(mechanisms=("PLAIN",), relayed=True)
            options = {"listeners": (with_passwords(mode=ClientMode.FORWARD, sasl=sasl, **secure),)}
            options["tls"] = tls.of_client(ca)
        else:
            options = {
                "listeners": (with_passwords(**secure),),
                "acls": rules(*OF_ALICE),
                "users": user_file(home, USERS),
            }
        topics = ("t=rewrite:crc32",) if place == "forward" else ()
        with proxied(broker.bootstrap, *topics, sasl=ottla.Plain("proxy", USERS["proxy"]), **options) as proxy:
            yield proxy.bootstrap


@pytest.mark.deep  # test_security.py has a login of each kind by librdkafka and aiokafka
@pytest.mark.parametrize("place", ["broker", "proxy", "relay"])
@pytest.mark.parametrize("secure", [False, True], ids=["plain", "tls"])
def test_each_client_logs_in_by_each_mechanism_or_hears_why_not(place: str, secure: bool, tmp_path: Path) -> None:
    ca = trustme.CA() if secure else None
    if ca is not None:
        ca.cert_pem.write_to_path(tmp_path / "ca.pem")
    with serving(place, tmp_path / "users", ca) as bootstrap:
        for client in CLIENTS:
            for mechanism in MECHANISMS if client is not SARAMA else ("PLAIN",):
                config = _secured(client, tmp_path) if secure else logins.transport(client.name, "SASL_PLAINTEXT")
                right, wrong = (
                    config | logins.password(client.name, mechanism, "alice", each)
                    for each in (USERS["alice"], "wrong")
                )
                _accepted(client, bootstrap, right)
                _refused(client, bootstrap, wrong, REFUSED[client.name])


def test_each_client_writes_and_reads_as_its_own_user_behind_a_proxy_that_rewrites(tmp_path: Path) -> None:
    ca = trustme.CA()
    ca.cert_pem.write_to_path(tmp_path / "ca.pem")
    with serving("forward", tmp_path, ca) as bootstrap:
        for number, client in enumerate(OTHERS):
            right, wrong = (
                _secured(client, tmp_path) | logins.password(client.name, "PLAIN", "alice", each)
                for each in (USERS["alice"], "wrong")
            )
            message = Message("t", b"key", client.name.encode())
            _accepted(client, bootstrap, right, message)
            assert _values(client, bootstrap, right, number + 1)[-1] == message.value
            _refused(client, bootstrap, wrong, REFUSED[client.name])


def _values(client: Client, bootstrap: str, config: Config, count: int) -> list[bytes | None]:
    """The first values of the topic; franz-go has a consumer only in a group."""
    if client is not FRANZ:
        return [each.value for each in client.consume(bootstrap, "t", config)]
    with CONSUMER_PROTOCOL["franz-go"].join(bootstrap, "t", "readers", config=config) as member:
        until(lambda: len(member.records) >= count, [member])
        return [each.value for each in member.records]


# -- tokens


@contextmanager
def serving_tokens(place: str, home: Path, ca: trustme.CA, provider: Provider) -> Iterator[str]:
    """A server that accepts the tokens of a provider; yields its address."""
    (home / "jwks.json").write_text(provider.keys())
    sasl = SaslSettings(
        mechanisms=("OAUTHBEARER",),
        oauth=OAuthSettings(jwks=str(home / "jwks.json"), issuer="ottla-tests", clock_skew=0.0),
    )
    secure: dict[str, Any] = {"protocol": "SASL_SSL", "port": 0, "tls": tls.serving(ca, HOST)}
    upstream = None if place == "proxy" else BrokerConfig(listeners=(ListenerConfig(sasl=sasl, **secure),))
    with Broker(upstream) as broker:
        broker.create_topic("t", 1)
        if place == "broker":
            yield broker.bootstrap
            return
        options: dict[str, Any]
        if place == "proxy":
            options = {"listeners": (with_passwords(sasl=sasl, **secure),), "acls": rules(*OF_ALICE)}
        else:
            passed_on = SaslSettings(mechanisms=("OAUTHBEARER",), relayed=True)
            options = {
                "listeners": (with_passwords(mode=ClientMode(place), sasl=passed_on, **secure),),
                "tls": tls.of_client(ca),
                "sasl": ottla.OAuthBearer(lambda: provider.token(sub="proxy")),
            }
        topics = ("t=rewrite:crc32",) if place == "forward" else ()
        with proxied(broker.bootstrap, *topics, **options) as proxy:
            yield proxy.bootstrap


# tests/proxy/test_security.py and test_forward_clients.py have tokens of some clients in the other modes.
in_places = pytest.mark.parametrize(
    "place", ["broker", "relay", *(pytest.param(each, marks=pytest.mark.deep) for each in ("proxy", "forward"))]
)
TOKEN_REFUSED = {
    "java": "SaslAuthenticationException",
    "librdkafka": "SASL authentication error",
    "aiokafka": "KafkaConnectionError",
    "kafkajs": "Closed connection",
    "franz-go": "invalid_token",
}
"""The words of a client whose token the server refuses.

As RFC 7628 and Apache Kafka have it, the server's first response is JSON that tells the error, and has no error code.
aiokafka 0.14 and kafkajs 2.2 take it for a success, send their next request, and are disconnected.
"""


@in_places
def test_each_client_logs_in_with_a_token_or_hears_that_it_is_refused(place: str, tmp_path: Path) -> None:
    ca, provider = trustme.CA(), Provider()
    ca.cert_pem.write_to_path(tmp_path / "ca.pem")
    foreign = rsa.generate_private_key(65537, 2048)
    with serving_tokens(place, tmp_path, ca, provider) as bootstrap:
        for client in OTHERS:
            config = _secured(client, tmp_path)
            given = logins.token(client.name, provider.token(sub="alice"), tmp_path)
            _accepted(client, bootstrap, config | given)
            wrong = provider.token(sub="alice", key=foreign)
            _refused(client, bootstrap, config | logins.token(client.name, wrong, tmp_path), TOKEN_REFUSED[client.name])


@pytest.mark.deep  # a foreign token is refused by the same steps
@in_places
def test_each_client_hears_that_its_token_has_expired(place: str, tmp_path: Path) -> None:
    ca, provider = trustme.CA(), Provider()
    ca.cert_pem.write_to_path(tmp_path / "ca.pem")
    with serving_tokens(place, tmp_path, ca, provider) as bootstrap:
        for client in OTHERS:
            expired = logins.token(client.name, provider.token(lasts=-60.0, sub="alice"), tmp_path)
            _refused(client, bootstrap, _secured(client, tmp_path) | expired, TOKEN_REFUSED[client.name])


# -- sessions


@pytest.mark.deep  # tests/proxy/test_forward.py has the order of the requests
@pytest.mark.parametrize(
    ("name", "session"),
    [
        ("java", 1.5),
        ("librdkafka", 1.5),
        ("franz-go", 4.0),  # it renews sessions 2.5 s before their end, and brokers allow that once a second
    ],
)
def test_transactions_go_on_while_the_client_authenticates_again(
    name: str, session: float, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ca = trustme.CA()
    ca.cert_pem.write_to_path(tmp_path / "ca.pem")
    secure: dict[str, Any] = {"protocol": SecurityProtocol.SASL_SSL, "port": 0, "tls": tls.serving(ca, HOST)}
    passed_on = SaslSettings(mechanisms=("PLAIN",), relayed=True)
    sasl = SaslSettings(mechanisms=("PLAIN", "SCRAM-SHA-256"), max_reauth={"PLAIN": session})
    options: dict[str, Any] = {
        "listeners": (with_passwords(mode=ClientMode.FORWARD, **(secure | {"sasl": passed_on})),),
        "tls": tls.of_client(ca),
        "sasl": ottla.Plain("proxy", USERS["proxy"]),
        "health": "127.0.0.1:0",
    }
    config = logins.transport(name, "SASL_SSL", tmp_path / "ca.pem")
    config |= logins.password(name, "PLAIN", "alice", USERS["alice"])
    with Broker(BrokerConfig(listeners=(ListenerConfig(sasl=sasl, **secure),))) as broker:
        for user, password in USERS.items():
            broker._call(methodcaller("set_password", user, password))
        broker.create_topic("t", 3)
        with (
            proxied(broker.bootstrap, "t=rewrite:crc32", **options) as proxy,
            TRANSACTORS[name].start(proxy.bootstrap, "tx", config) as transactor,
        ):
            transactor.do("init")
            wanted, deadline = _handshakes(proxy) + 4, time.monotonic() + HUNG
            while _handshakes(proxy) < wanted:
                assert time.monotonic() < deadline, "the client does not authenticate again"
                transactor.do("begin")
                transactor.send("t", 0, b"key", b"value")
                transactor.do("commit")
    assert not [each for each in caplog.messages if "closed" in each or "session" in each]


def _handshakes(proxy: ProxyThread) -> float:
    """How many SaslHandshakes have come to a proxy."""
    return scrape(proxy.running.health).values(REQUESTS.name).get(("SaslHandshake",), 0.0)


# -- certificates


SUBJECTS = SubjectMapping.parse("RULE:^.*CN=([^,]+).*$/$1/L")


def issued(ca: trustme.CA, name: str) -> trustme.LeafCert:
    """A certificate whose subject has this name; Java reads none without a name of a host."""
    return ca.issue_cert(f"{name}.example.com", common_name=name)


@contextmanager
def serving_certificates(place: str, ca: trustme.CA) -> Iterator[str]:
    """A server in which the owner of a certificate may write if its name is Alice; yields its address."""
    secure: dict[str, Any] = {
        "protocol": SecurityProtocol.SSL,
        "port": 0,
        "tls": tls.serving(ca, HOST, "required"),
        "subjects": SUBJECTS,
    }
    config = BrokerConfig(listeners=(ListenerConfig(**secure),), acls=True, super_users=("User:admin",))
    with Broker(config if place == "broker" else None) as broker:
        broker.create_topic("t", 1)
        if place == "broker":
            admin = tls.of_client(ca, issued(ca, "admin"))
            with ottla.sync.connect(broker.bootstrap, tls=admin, connect_timeout=HUNG) as client:
                client.create_acls([ottla.AclBinding("User:alice", "All", "Topic", "t")])
            yield broker.bootstrap
            return
        listener = with_passwords(sasl=None, **secure)
        with proxied(broker.bootstrap, listeners=(listener,), acls=rules(*OF_ALICE)) as proxy:
            yield proxy.bootstrap


NO_CERTIFICATE: Mapping[str, str] = {
    "java": "SslAuthenticationException",
    "librdkafka": "certificate required",
    "aiokafka": "KafkaConnectionError",
    "kafkajs": "certificate required",
    "franz-go": "certificate required",
}
"""The words of a client that shows no certificate."""
ANOTHER_CA: Mapping[str, str] = {
    "java": "SslAuthenticationException",
    "librdkafka": "unknown ca",
    "aiokafka": "KafkaConnectionError",
    "kafkajs": "unknown ca",
    "franz-go": "unknown certificate authority",
}
"""The words of a client with a certificate of an authority that the server does not trust."""
DENIED: Mapping[str, str] = {
    "java": "AuthorizationException",
    "librdkafka": "AUTHORIZATION_FAILED",
    "aiokafka": "AuthorizationFailed",
    "kafkajs": "AUTHORIZATION_FAILED",
    "franz-go": "AUTHORIZATION_FAILED",
}


# tests/proxy/test_security.py has our client's certificates at the proxy.
@pytest.mark.parametrize("place", ["broker", pytest.param("proxy", marks=pytest.mark.deep)])
def test_each_client_is_the_subject_of_its_certificate_and_without_one_it_hears_why_not(
    place: str, tmp_path: Path
) -> None:
    ca, another = trustme.CA(), trustme.CA()
    ca.cert_pem.write_to_path(tmp_path / "ca.pem")
    with serving_certificates(place, ca) as bootstrap:
        for client in OTHERS:
            config = logins.transport(client.name, "SSL", tmp_path / "ca.pem")
            alices = logins.certificate(client.name, issued(ca, "Alice"), tmp_path)
            _accepted(client, bootstrap, config | alices)
            mallorys = logins.certificate(client.name, issued(ca, "Mallory"), tmp_path)
            _refused(client, bootstrap, config | mallorys, DENIED[client.name])
            foreign = logins.certificate(client.name, issued(another, "Alice"), tmp_path)
            _refused(client, bootstrap, config | foreign, ANOTHER_CA[client.name])
            _refused(client, bootstrap, config, NO_CERTIFICATE[client.name])


# -- of all


def _secured(client: Client, home: Path) -> Config:
    return logins.transport(client.name, "SASL_SSL", home / "ca.pem")


def _accepted(client: Client, bootstrap: str, config: Config, message: Message = _MESSAGE) -> None:
    """Check that a client logs in and writes."""
    try:
        [outcome] = client.produce(bootstrap, [message], config)
    except PeerFailed as failed:
        raise AssertionError(f"{client} with {config}") from failed
    assert not outcome.error, f"{client} with {config}: {outcome}"


def _refused(client: Client, bootstrap: str, config: Config, words: str) -> None:
    """Check that a client cannot write, and says why."""
    config = config | logins.SOON.get(client.name, {})
    if client is LIBRDKAFKA:
        for seconds in longer_and_longer(3.0):  # it fails after this time, even without an answer
            said = _said(client, bootstrap, config | {"message.timeout.ms": str(round(1000 * seconds))})
            if words in said:
                break
    else:
        said = _said(client, bootstrap, config)
    assert words in said, f"{client} with {config}: {said}"


def _said(client: Client, bootstrap: str, config: Config) -> str:
    """The output of a client that cannot write."""
    with client.producing(bootstrap, config) as producer:
        try:
            producer.send(_MESSAGE)
            outcomes = producer.finish()
        except PeerFailed as failed:
            return str(failed)
        assert all(each.error for each in outcomes), f"{client} with {config} has written"
        return f"{outcomes} {producer.said()}"
