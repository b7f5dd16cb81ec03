"""A proxy with several listeners: each has its ports, its addresses and its security."""

from pathlib import Path

import pytest
import trio
import trustme

import ottla
from ottla.brokerlite.config import BrokerConfig
from ottla.cli.servers import proxy_config
from ottla.config_file import ConfigFile
from ottla.errors import ConfigurationError
from ottla.listeners import SecurityProtocol
from ottla.proxy.config import ProxyConfig
from ottla.proxy.config_file import read_config
from ottla.proxy.listeners import ClientMode, ProxyListener
from ottla.proxy.serve import run_proxy
from ottla.testing import Broker
from tests import tls
from tests.patience import HUNG
from tests.proxy.running import ProxyThread, proxied

UPSTREAM = 'upstream = "kafka:1"\n'


def written(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "proxy.toml"
    file.write_text(UPSTREAM + text)
    return file


def read(tmp_path: Path, text: str) -> "tuple[ProxyListener, ...]":
    return read_config(ConfigFile.read(written(tmp_path, text))).all_listeners


async def topics(bootstrap: str, secure: ottla.TLS | None = None) -> list[str]:
    async with ottla.connect(bootstrap, tls=secure, connect_timeout=HUNG) as client:
        async with client.producer() as producer:
            await producer.send("t", b"value")
        return await client.list_topics()


# -- the configuration


def test_a_file_names_listeners_as_the_brokers_does(tmp_path: Path) -> None:
    ca = trustme.CA()
    own = ca.issue_cert("127.0.0.1")
    own.private_key_and_cert_chain_pem.write_to_path(tmp_path / "server.pem")
    ca.cert_pem.write_to_path(tmp_path / "ca.pem")
    plain, apps = read(
        tmp_path,
        f"""
listeners = "PLAINTEXT://127.0.0.1:19092,APPS://:19192"
advertised.listeners = "APPS://proxy.example:9192"
listener.security.protocol.map = "APPS:SSL"
ssl.keystore.location = "{tmp_path / "server.pem"}"
listener.name.apps.ssl.client.auth = "required"
ssl.truststore.location = "{tmp_path / "ca.pem"}"
ssl.principal.mapping.rules = "RULE:^CN=([^,]+).*$/$1/L"
super-users = ["User:admin"]
""",
    )
    assert (plain.name, plain.address, plain.advertised_host, plain.authenticates) == (
        "PLAINTEXT", "127.0.0.1:19092", "127.0.0.1", False,
    )  # fmt: skip
    assert (apps.name, apps.address, apps.protocol) == ("APPS", "0.0.0.0:19192", SecurityProtocol.SSL)
    assert apps.authenticates and apps.subjects is not None and apps.subjects.name("CN=Shop,O=x") == "shop"
    assert [apps.advertised_for(above, 19192 + above) for above in (0, 2)] == [9192, 9194]
    assert [plain.advertised_for(above, 19092 + above) for above in (0, 2)] == [19092, 19094]


SASL = 'listeners = "SASL_PLAINTEXT://127.0.0.1:19092"\nsasl.enabled.mechanisms = "SCRAM-SHA-512"\n'
SUPER = 'super-users = ["User:admin"]\n'


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('listeners = "PLAINTEXT://:9092"', "is every address: name the host that clients reach"),
        ('listeners = "SSL://127.0.0.1:9092"', "give its certificate and its key, in PEM, as ssl.keystore.location"),
        ('listeners = "A://h:9092,B://h:9092"\nlistener.security.protocol.map = "A:PLAINTEXT,B:PLAINTEXT"',
         "B has the port of A, 9092: give B another port"),
        ('listeners = "A://h:9092"\nlistener.security.protocol.map = "A:PLAINTEXT"\nlisten = "h:1"',
         "listen and listeners say the same"),
        (SASL, "listener SASL_PLAINTEXT authenticates clients, and there are no ACLs"),
        (SASL + SUPER, 'checks passwords, and there are no users: write users = "users.json"'),
        (SASL + SUPER + 'users = "/nowhere/users.json"',
         "cannot read /nowhere/users.json: no such file or directory; add the first user with ottla proxy users add"),
        (SASL + 'sasl.jaas.config = "x"', "sasl.jaas.config: passwords do not belong into this file, and there are no "
         "login modules: leave it out, and add users with ottla proxy users add"),
        (SASL + 'client.authentication = "relay"', "has no user there for metadata: give upstream-config"),
        (SASL + 'client.authentication = "share"', "it must be terminate, relay or forward"),
        (SASL + 'client.authentication = "relay"\nupstream-config = "x"\ntopics = { a = "rewrite" }',
         "relays, and the rule 'a' rewrites topics, which needs connections of the proxy's own: use "
         "client.authentication=forward (with PLAIN or OAUTHBEARER), or terminate"),
        (SASL + 'client.authentication = "forward"', "which needs SASL, and TLS to protect passwords and "
         "tokens, but the listener is SASL_PLAINTEXT: use SASL_SSL"),
        (SASL + 'listener.name.other.ssl.client.auth = "required"', "listeners has no other"),
        (SASL + 'listener.name.sasl_plaintext.oauthbearer.connections.max.reauth.ms = 1', "has no effect: it needs a"),
        (SASL + 'listener.name.sasl_plaintext.plain.client.authentication = "relay"', "has no effect: no listener"),
        (SASL + 'client.authentication = "relay"\nsasl.oauthbearer.expected.audience = "kafka"', "has no effect"),
        ('client.authentication = "relay"', "no listener has SASL"),
        ('ssl.keystore.location = "x"', "ssl.keystore.location is given, but no listener is SSL"),
        ('deny-apis = ["AlterConfig"]', "do you mean AlterConfigs?"),
        ('deny-apis = ["CreateDelegationToken"]', "clients do not get it anyway"),
        ('deny-apis = ["Produce:3-8"]', "deny the oldest or the newest of 0-12"),
        ('deny-apis = ["ApiVersions"]', "without it no client can use the proxy"),
        ('deny-apis = "Produce"', "deny-apis is a list"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_used_says_what_to_do(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        read(tmp_path, text + "\n")
    assert says in str(raised.value)
    assert str(tmp_path / "proxy.toml") in str(raised.value)


def test_relay_is_the_mode_of_the_listeners_with_sasl(tmp_path: Path) -> None:
    text = SASL.replace('092"', '092,PLAINTEXT://127.0.0.1:19192"')
    modes = [each.mode for each in read(tmp_path, text + 'client.authentication = "relay"\nupstream-config = "x"\n')]
    assert modes == [ClientMode.RELAY, ClientMode.TERMINATE]


FORWARD = """
listeners = "SASL_SSL://127.0.0.1:19092"
ssl.keystore.location = "{home}/server.pem"
upstream-config = "{home}/upstream.properties"
client.authentication = "forward"
topics = {{ a = "rewrite" }}
"""
ENCRYPTED = "security.protocol=SASL_SSL\n"
USER = "sasl.mechanism=PLAIN\nsasl.username=proxy\nsasl.password=secret\n"


def forwarding(home: Path, mechanisms: str, more: str = "", *, upstream: str = ENCRYPTED + USER) -> ProxyConfig:
    trustme.CA().issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(home / "server.pem")
    (home / "upstream.properties").write_text(upstream)
    text = f'{FORWARD.format(home=home)}sasl.enabled.mechanisms = "{mechanisms}"\n{more}\n'
    return proxy_config(ConfigFile.read(written(home, text)))


@pytest.mark.parametrize(
    ("mechanisms", "more", "upstream", "says"),
    [
        ("PLAIN,SCRAM-SHA-256", "", ENCRYPTED + USER, "SCRAM-SHA-256 gives the proxy nothing to log in with at "
         "upstream: leave only PLAIN and OAUTHBEARER in sasl.enabled.mechanisms, or use relay"),
        ("PLAIN", "", "security.protocol=SASL_PLAINTEXT\n" + USER, "forwards passwords and tokens, which need TLS "
         "on the way to upstream: give security.protocol=SASL_SSL in the file of upstream-config"),
        ("PLAIN", "", "security.protocol=SSL\n", "the proxy has no user there for metadata: give sasl.mechanism"),
        ("PLAIN", "sasl.oauthbearer.sub.claim.name = 'azp'", ENCRYPTED + USER, "it needs a listener with OAUTHBEARER"),
        ("OAUTHBEARER", "sasl.oauthbearer.expected.audience = 'kafka'", ENCRYPTED + USER, "has no effect"),
    ],
)  # fmt: skip
def test_a_listener_that_forwards_has_what_it_needs(
    tmp_path: Path, mechanisms: str, more: str, upstream: str, says: str
) -> None:
    with pytest.raises(ConfigurationError) as raised:
        forwarding(tmp_path, mechanisms, more, upstream=upstream)
    assert says in str(raised.value) and str(tmp_path / "proxy.toml") in str(raised.value)


def test_a_proxy_that_would_send_passwords_in_clear_text_does_not_start(tmp_path: Path) -> None:
    """The file of `upstream_config` is read by the command; a program may forget to."""
    [listener] = forwarding(tmp_path, "PLAIN").listeners
    config = ProxyConfig(upstream="kafka:1", upstream_config="upstream.properties", listeners=(listener,))
    with pytest.raises(ConfigurationError, match="forwards passwords and tokens, which need TLS"):
        trio.run(run_proxy, config)


def test_a_listener_that_forwards_may_rewrite_and_names_the_claim_of_users(tmp_path: Path) -> None:
    [named] = forwarding(tmp_path, "PLAIN,OAUTHBEARER", "sasl.oauthbearer.sub.claim.name = 'azp'").listeners
    [usual] = forwarding(tmp_path, "OAUTHBEARER").listeners
    assert named.mode is ClientMode.FORWARD and not named.authenticates and not named.needs_users
    assert named.sasl is not None and usual.sasl is not None
    assert (named.sasl.claim, usual.sasl.claim) == ("azp", "sub")


# -- real clients


def listener(name: str, **options: object) -> ProxyListener:
    return ProxyListener(name=name, port=0, **options)  # type: ignore[arg-type]


def test_clients_stay_on_the_listener_that_they_chose() -> None:
    """With the address of the other listener from Metadata, the first could not continue."""
    ca = trustme.CA()
    plain, secured = listener("PLAIN"), listener("TLS", protocol="SSL", tls=tls.serving(ca, "127.0.0.1"))
    with Broker() as broker, proxied(broker.bootstrap, listeners=(plain, secured)) as proxy:
        broker.create_topic("t", 1)
        addresses = proxy.running.listeners
        assert list(addresses) == ["PLAIN", "TLS"] and addresses["PLAIN"] == proxy.bootstrap
        assert trio.run(topics, addresses["PLAIN"]) == ["t"]
        assert trio.run(topics, addresses["TLS"], tls.of_client(ca)) == ["t"]


def test_a_renewed_certificate_is_loaded_without_a_restart(tmp_path: Path) -> None:
    old, new = trustme.CA(), trustme.CA()
    pem = tmp_path / "server.pem"
    old.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(pem)
    secured = listener("TLS", protocol="SSL", tls=ottla.tls.ServerTLS(certificate=str(pem)))
    with Broker(BrokerConfig(port=0)) as broker, proxied(broker.bootstrap, listeners=(secured,)) as proxy:
        broker.create_topic("t", 1)
        assert trio.run(topics, proxy.bootstrap, tls.of_client(old)) == ["t"]
        pem.unlink()
        new.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(pem)
        assert trio.run(topics, proxy.bootstrap, tls.of_client(new)) == ["t"]


def test_an_open_listener_is_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    open_ = ProxyListener(name="WIDE", host="0.0.0.0", port=0, advertise="127.0.0.1")
    with Broker() as broker:
        proxy = ProxyThread(broker.bootstrap, listeners=(open_, listener("LOCAL")))
        proxy.start()
        proxy.stop()
    named = [each.__dict__["listener"] for each in caplog.records if "without authentication" in each.message]
    assert named == ["WIDE"]
