"""`ottla.testing.Broker` in a program of its own, without pytest."""

import re
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
import trustme

import ottla.sync
from ottla.brokerlite.config import BrokerConfig
from ottla.errors import AuthenticationFailed, ConfigurationError, TopicAuthorizationFailed
from ottla.listeners import ListenerConfig, SecurityProtocol
from ottla.proxy.config import ProxyConfig
from ottla.sasl_server.settings import SaslSettings
from ottla.testing import Broker
from ottla.tls import TLS
from tests import tls
from tests.patience import HUNG


def test_a_broker_needs_no_configuration_and_takes_its_folder_along() -> None:
    with Broker() as broker:
        broker.create_topic("orders", partitions=3)
        with ottla.sync.connect(broker.bootstrap) as client, client.producer() as producer:
            assert producer.send("orders", b"an order", partition=2).offset == 0
        folder = broker.data
        assert list(folder.glob("orders-*"))
    assert not folder.exists()


def test_the_temporary_folder_outlives_restarts_and_kills() -> None:
    with Broker() as broker, ottla.sync.connect(broker.bootstrap) as client:
        with client.producer() as producer:
            producer.send("orders", b"an order")
        broker.restart()
        broker.kill()
        broker.start()
        with client.consumer("orders") as consumer:
            assert [record.value for record in next(consumer)] == [b"an order"]


def test_its_repr_has_the_address_and_whether_it_runs() -> None:
    with Broker() as broker:
        assert repr(broker) == f"<Broker {broker.bootstrap}, running>"
    assert repr(broker) == f"<Broker {broker.bootstrap}, stopped>"


def test_a_block_leaves_a_folder_that_it_was_given(tmp_path: Path) -> None:
    with Broker(BrokerConfig(port=0, data=tmp_path / "data")) as broker:
        broker.create_topic("orders")
    assert list((tmp_path / "data").glob("orders-0"))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"retention.ms": 5}, "configs: 'retention.ms' must be a str, not 5: write '5'"),
        ({"preallocate": True}, "configs: 'preallocate' must be a str, not True: write 'true'"),
        (
            {"min.cleanable.dirty.ratio": 0.5},
            "configs: 'min.cleanable.dirty.ratio' must be a str, not 0.5: write '0.5'",
        ),
        ({"cleanup.policy": ["compact", "delete"]}, "not ['compact', 'delete']: write 'compact,delete'"),
        ({"cleanup.policy": b"compact"}, "must be a str, not b'compact': write 'compact'"),
        ({"retention.ms": None}, "must be a str, not None: leave it out for the broker's default"),
        ({5: "5"}, "configs: the name of a setting must be a str, not 5"),
        ("retention.ms=5", "configs must be a mapping, as in {'retention.ms': '60000'}, not 'retention.ms=5'"),
        ([], "configs must be a mapping, as in {'retention.ms': '60000'}, not []"),
    ],
)
def test_a_topics_configuration_is_a_string_and_the_error_shows_it(ottla_broker: Broker, given: Any, says: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(says)):
        ottla_broker.create_topic("t", configs=given)


def test_a_topics_name_and_partitions_are_checked_by_name(ottla_broker: Broker) -> None:
    wrong: Any = ottla_broker
    with pytest.raises(ConfigurationError, match="name must be a str, not 5"):
        wrong.create_topic(5)
    with pytest.raises(ConfigurationError, match="partitions must be an int, not '3'"):
        wrong.create_topic("t", "3")


@pytest.mark.parametrize("config", ["/a/folder", Path("folder"), {"port": 0}])
def test_what_is_no_configuration_is_refused_with_an_example(config: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"as in Broker\(BrokerConfig\("):
        Broker(config)
    with pytest.raises(ConfigurationError, match=r"data is 'folder'; it must be a pathlib\.Path"):
        BrokerConfig(data="folder")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: BrokerConfig(prt=1), r"BrokerConfig\(\) has no option prt: do you mean port\?"),  # type: ignore[call-arg]
        (lambda: BrokerConfig(xyz=1), r"BrokerConfig\(\) has no option xyz: there are host, port, "),  # type: ignore[call-arg]
        (lambda: BrokerConfig(segment_bytes=5), "segment_bytes is 5; it must be 1024 to"),
        (lambda: TLS(cafile="secret"), r"TLS\(\) has no option cafile: there are ca, certificate,"),  # type: ignore[call-arg]
        (lambda: ProxyConfig(upstrem="b:1"), r"ProxyConfig\(\) has no option upstrem: do you mean upstream\?"),  # type: ignore[call-arg]
    ],
)
def test_an_option_that_does_not_fit_is_named_as_it_is_written(make: Callable[[], object], says: str) -> None:
    with pytest.raises((TypeError, ConfigurationError), match=says) as raised:
        make()
    assert "secret" not in str(raised.value)


FORGETFUL = """
import sys
sys.modules["pytest"] = None
import ottla
broker = ottla.testing.Broker()
broker.create_topic("orders")
print(broker.data)
"""


def test_a_program_that_never_stops_its_broker_ends_and_leaves_no_folder() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", FORGETFUL], capture_output=True, text=True, timeout=HUNG
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert not Path(done.stdout.strip()).exists()


def test_a_stopped_broker_starts_again_for_a_block_unless_its_folder_is_removed(tmp_path: Path) -> None:
    broker = Broker()
    broker.stop()
    with broker:
        broker.create_topic("orders")
    with pytest.raises(RuntimeError, match="its temporary folder is removed: create another one"), broker:
        pass
    given = Broker(BrokerConfig(port=0, data=tmp_path / "data"))
    for name in ("a", "b"):
        with given:
            given.create_topic(name)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets the broker listen on a port that is reserved")
def test_the_port_is_reserved_until_the_block_ends_and_again_in_the_next_block(tmp_path: Path) -> None:
    def is_free() -> bool:
        with socket.socket() as other:
            try:
                other.bind((broker.host, broker.port))
            except OSError:
                return False
        return True

    broker = Broker(BrokerConfig(port=0, data=tmp_path / "data"))
    port = broker.port
    for _ in range(2):
        with broker:
            broker.stop()
            assert not is_free()
        assert is_free()
    assert broker.port == port


# -- users and certificates


SECRETS = {"alice": "secret"}


def stored(broker: Broker, user: str | None) -> None:
    connection = ottla.sync.connect(broker.bootstrap, **broker.client_options(user), connect_timeout=HUNG)
    with connection as client, client.producer() as producer:
        producer.send("orders", b"an order")


@pytest.mark.parametrize("address", [{"host": "0.0.0.0"}, {"host": "::1"}, {"host": "localhost"}])
def test_clients_trust_a_broker_at_any_address(address: dict[str, Any]) -> None:
    with Broker(BrokerConfig(port=0, **address), certificates=True) as broker:
        stored(broker, "app")


@pytest.mark.parametrize("advertise", ["kafka.test", "bücher.example:9092", "192.0.2.7"])
def test_the_certificate_names_the_advertised_host(advertise: str) -> None:
    config = BrokerConfig(port=0, advertise=advertise)
    with Broker(config, certificates=True) as broker, socket.create_connection((broker.host, broker.port)) as raw:
        context = broker.client_options()["tls"].context()
        with context.wrap_socket(raw, server_hostname=advertise.partition(":")[0]) as secure:
            assert secure.version() == "TLSv1.3"


def test_a_host_that_no_certificate_can_name_is_refused() -> None:
    host = "a" * 64
    with pytest.raises(ConfigurationError, match=f"no certificate can name the host '{host}.test'"):
        Broker(BrokerConfig(port=0, advertise=f"{host}.test"), certificates=True)


def test_a_broker_may_have_no_users_yet() -> None:
    for certificates in (False, True):
        with Broker(users={}, certificates=certificates) as broker:
            assert broker.config.listeners[0].protocol.has_sasl
            for name in ("alice", None):
                with pytest.raises(ConfigurationError, match="name one of the users: there are none"):
                    broker.client_options(name)


def test_listeners_have_their_own_security() -> None:
    sasl = SaslSettings(mechanisms=("PLAIN",))
    config = BrokerConfig(
        listeners=(ListenerConfig(protocol=SecurityProtocol.SASL_PLAINTEXT, host="127.0.0.1", port=0, sasl=sasl),)
    )
    options: list[dict[str, Any]] = [{"users": SECRETS}, {"certificates": True}, {"users": {}}]
    for given in options:
        with pytest.raises(ConfigurationError, match="for a config without listeners"):
            Broker(config, **given)
    with Broker(config) as broker:
        for name in ("alice", None):
            with pytest.raises(ConfigurationError, match="a certificate or listeners of yours"):
                broker.client_options(name)


@pytest.mark.parametrize("name", ["", "x" * 65, "é" * 33])
def test_a_name_that_no_certificate_can_have_is_refused(name: str) -> None:
    with (
        Broker(certificates=True) as broker,
        pytest.raises(ConfigurationError, match=f"user is '{name}'; the name in a certificate has 1 to 64 bytes"),
    ):
        broker.client_options(name)


@pytest.mark.ottla_broker(users=SECRETS, certificates=True)
def test_a_marker_gives_a_test_a_broker_with_users_and_certificates(ottla_broker: Broker) -> None:
    stored(ottla_broker, "alice")
    ottla_broker.restart()
    stored(ottla_broker, "alice")
    options = ottla_broker.client_options("alice")
    for wrong in (
        options | {"sasl": ottla.ScramSha512("alice", "another")},
        options | {"tls": TLS()},
        {"tls": options["tls"]} | {"sasl": ottla.ScramSha512("bob", "secret")},
    ):
        client = ottla.sync.connect(ottla_broker.bootstrap, **wrong, connect_timeout=HUNG)
        with pytest.raises(AuthenticationFailed), client:
            pass


def test_a_broker_with_certificates_serves_other_clients() -> None:
    with Broker(users=SECRETS, certificates=True) as broker:
        reports: list[Any] = []
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": broker.bootstrap,
                "security.protocol": "SASL_SSL",
                "ssl.ca.pem": broker.ca,
                "sasl.mechanism": "PLAIN",
                "sasl.username": "alice",
                "sasl.password": SECRETS["alice"],
            }
        )
        producer.produce("orders", b"an order", on_delivery=lambda error, message: reports.append(error))
        assert producer.flush(HUNG) == 0
        assert reports == [None]
        assert "PRIVATE" not in str(broker.ca) + repr(broker.client_options("alice")) + repr(broker.config)


def test_without_users_a_client_is_the_subject_of_its_certificate() -> None:
    config = BrokerConfig(port=0, acls=True, super_users=("User:CN=admin",))
    with Broker(config, certificates=True) as broker:
        stored(broker, "admin")
        for user in ("app", None):
            with pytest.raises(TopicAuthorizationFailed):
                stored(broker, user)


def test_what_a_client_cannot_have_is_refused() -> None:
    with Broker() as plain, Broker(users=SECRETS) as users:
        assert plain.client_options() == {}
        with pytest.raises(ConfigurationError, match="this broker has no users: give it users="):
            plain.client_options("alice")
        assert list(users.client_options("alice")) == ["sasl"]
        for name in ("bob", None):
            with pytest.raises(ConfigurationError, match=f"user is {name!r}; name one of the users: 'alice'"):
                users.client_options(name)
    ca = trustme.CA()
    secured = tls.serving(ca, "127.0.0.1")
    with Broker(tls=secured) as own, pytest.raises(ConfigurationError, match="a certificate or listeners of yours"):
        own.client_options()
    with pytest.raises(ConfigurationError, match="certificates=True or tls=…, not both"):
        Broker(certificates=True, tls=tls.serving(ca, "127.0.0.1"))


def test_certificates_need_cryptography(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'ottla\[certificates\]'"):
        Broker(certificates=True)


def test_the_options_of_a_broker_belong_to_its_configuration() -> None:
    wrong: Any = Broker
    with pytest.raises(
        TypeError, match=r"Broker\(\) takes a BrokerConfig, as in Broker\(BrokerConfig\(port=…, data=…\)\)"
    ):
        wrong(port=9092, data="folder")
    with pytest.raises(TypeError, match=r"Broker\(\) has no option certificate: do you mean certificates\?"):
        wrong(certificate=True)
    with pytest.raises(TypeError, match=r"as in Broker\(BrokerConfig\(super_users=…\)\)"):
        wrong(super_users=("User:alice",))


# -- the fixture and its marker


def test_the_fixture_has_the_configuration_of_a_plain_broker(ottla_broker: Broker) -> None:
    with Broker() as plain:
        same = replace(ottla_broker.config, data=plain.data, port=plain.port)
        assert same == plain.config


@pytest.mark.ottla_broker(users=SECRETS, acls=True, super_users=("User:admin",))
def test_the_marker_changes_the_configuration(ottla_broker: Broker) -> None:
    with pytest.raises(TopicAuthorizationFailed):
        stored(ottla_broker, "alice")


@pytest.mark.ottla_broker(auto_create=False, default_partitions=2)
class TestMarked:
    @pytest.mark.ottla_broker(default_partitions=3)
    def test_the_markers_of_a_class_and_of_a_test_add_up(self, ottla_broker: Broker) -> None:
        assert (ottla_broker.config.auto_create, ottla_broker.config.default_partitions) == (False, 3)


@pytest.mark.ottla_broker(listeners=(ListenerConfig(port=0), ListenerConfig(name="OTHER", port=0)))
def test_the_marker_may_give_listeners(ottla_broker: Broker) -> None:
    assert [each.name for each in ottla_broker.config.listeners] == ["PLAINTEXT", "OTHER"]


@pytest.mark.parametrize(
    "says",
    [
        pytest.param(
            r"has no argument certificate: do you mean certificates\?",
            marks=pytest.mark.ottla_broker(certificate=True),
        ),
        pytest.param(r"has no argument acl: do you mean acls\?", marks=pytest.mark.ottla_broker(acl=True)),
        pytest.param(
            "has no argument xyz: it takes users, certificates, tls, and fields of BrokerConfig",
            marks=pytest.mark.ottla_broker(xyz=BrokerConfig()),
        ),
        pytest.param("has no argument config: ", marks=pytest.mark.ottla_broker(config=BrokerConfig())),
        pytest.param("takes arguments by name: users, ", marks=pytest.mark.ottla_broker(BrokerConfig())),
    ],
)
def test_a_wrong_argument_of_the_marker_is_named(request: pytest.FixtureRequest, says: str) -> None:
    with pytest.raises(pytest.fail.Exception, match=f"the marker ottla_broker {says}"):
        request.getfixturevalue("ottla_broker")
