"""A client of another language that has logged in, but may not do something, hears so, by name, and does not hang.

The clients' own words for TOPIC_AUTHORIZATION_FAILED, GROUP_AUTHORIZATION_FAILED and
TRANSACTIONAL_ID_AUTHORIZATION_FAILED are in `TOPIC`, `GROUP` and `TRANSACTIONAL_ID`.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trustme

import ottla
from ottla.brokerlite.config import BrokerConfig
from ottla.proxy.listeners import ClientMode
from ottla.sasl_server.settings import SaslSettings
from ottla.testing import Broker
from tests import tls
from tests.interop import logins
from tests.interop.lines import Message
from tests.interop.logins import Config
from tests.interop.members import CONSUMER_PROTOCOL, MEMBERS, until
from tests.interop.peers import AIOKAFKA, FRANZ, JAVA, KAFKAJS, LIBRDKAFKA, Client, PeerFailed
from tests.interop.transacting import TRANSACTORS, Refused
from tests.patience import HUNG
from tests.proxy.running import proxied
from tests.proxy.secured import rules, user_file, with_passwords

pytestmark = pytest.mark.slow

USERS = {"alice": "secret-of-alice", "proxy": "secret-of-the-proxy"}
HOST = "127.0.0.1"
RIGHTS = (
    ("All", "Topic", "t"),
    ("Describe", "Topic", "seen"),
    ("Read", "Group", "billing"),
    ("Write", "TransactionalId", "payments"),
)
"""The rights of alice. She may neither write to topic `seen` nor read it, and not even see topic `hidden`."""
TOPIC: Mapping[str, str] = {
    "java": "TopicAuthorizationException",
    "librdkafka": "TOPIC_AUTHORIZATION_FAILED",
    "aiokafka": "TopicAuthorizationFailedError",
    "kafkajs": "Not authorized to access topics",
    "franz-go": "TOPIC_AUTHORIZATION_FAILED",
}
GROUP: Mapping[str, str] = {
    "java": "GroupAuthorizationException",
    "librdkafka": "GROUP_AUTHORIZATION_FAILED",
    "aiokafka": "GroupAuthorizationFailedError",
    "kafkajs": "Not authorized to access group",
    "franz-go": "GROUP_AUTHORIZATION_FAILED",
}
TRANSACTIONAL_ID: Mapping[str, str] = {
    "java": "TransactionalIdAuthorizationException",
    "librdkafka": "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    "aiokafka": "TransactionalIdAuthorizationFailed",
    "kafkajs": "Transactional Id authorization failed",
    "franz-go": "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
}
CLIENTS = (JAVA, LIBRDKAFKA, AIOKAFKA, KAFKAJS, FRANZ)
PLACES = ("broker", "proxy", pytest.param("forward", marks=pytest.mark.deep))  # in mode forward a broker decides
each_client = pytest.mark.parametrize("client", CLIENTS, ids=str)


@pytest.fixture(scope="module")
def ca() -> trustme.CA:
    return trustme.CA()


@contextmanager
def denying(place: str, home: Path, ca: trustme.CA) -> Iterator[str]:
    """A server at which alice has these rights; in mode forward, of a proxy that rewrites, the broker decides."""
    of_proxy: dict[str, Any] = {"sasl": ottla.Plain("proxy", USERS["proxy"]), "tls": tls.of_client(ca)}
    config = BrokerConfig(
        port=0, acls=True, super_users=("User:proxy",), auto_create=False, group_initial_rebalance_delay=0
    )
    with Broker(config, users=USERS, tls=tls.serving(ca, HOST)) as broker:
        with ottla.sync.connect(broker.bootstrap, connect_timeout=HUNG, **of_proxy) as admin:
            for topic in ("t", "seen", "hidden"):
                admin.create_topic(topic, partitions=1)
            if place != "proxy":
                admin.create_acls([ottla.AclBinding("User:alice", *each) for each in RIGHTS])
        if place == "broker":
            yield broker.bootstrap
            return
        secure: dict[str, Any] = {"protocol": "SASL_SSL", "tls": tls.serving(ca, HOST)}
        if place == "forward":
            sasl = SaslSettings(mechanisms=("PLAIN",), relayed=True)
            listener = with_passwords(mode=ClientMode.FORWARD, sasl=sasl, **secure)
            with proxied(broker.bootstrap, "*=rewrite:crc32", listeners=(listener,), **of_proxy) as proxy:
                yield proxy.bootstrap
        else:
            options = {
                "listeners": (with_passwords(**secure),),
                "acls": rules(*(f"allow alice {' '.join(each)}" for each in RIGHTS)),
                "users": user_file(home, USERS),
            }
            with proxied(broker.bootstrap, **options, **of_proxy) as proxy:
                yield proxy.bootstrap


@pytest.fixture(scope="module", params=PLACES)
def bootstrap(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, ca: trustme.CA
) -> Iterator[str]:
    with denying(request.param, tmp_path_factory.mktemp("users"), ca) as address:
        yield address


@pytest.fixture
def login(client: Client, ca: trustme.CA, tmp_path: Path) -> Config:
    """The login of alice."""
    ca.cert_pem.write_to_path(tmp_path / "ca.pem")
    secure = logins.transport(client.name, "SASL_SSL", tmp_path / "ca.pem")
    return secure | logins.password(client.name, "PLAIN", "alice", USERS["alice"])


@each_client
@pytest.mark.parametrize("topic", ["seen", "hidden"])
def test_a_producer_names_the_topic_that_it_may_not_write_to(
    client: Client, topic: str, bootstrap: str, login: Config
) -> None:
    """It may see one of the topics, so that the Produce response has the error; else Metadata has it."""
    with client.producing(bootstrap, login | logins.SOON.get(client.name, {})) as producer:
        producer.send(Message("t", b"key", b"value"))
        producer.send(Message(topic, b"key", b"value"))
        allowed, denied = producer.finish()
        said = producer.said()
    if client is not KAFKAJS:  # whose calls fail as a whole
        assert not allowed.error, f"{allowed} {said}"
    assert TOPIC[client.name] in f"{denied}", f"{denied} {said}"


@each_client
@pytest.mark.parametrize("topic", ["seen", "hidden"])
def test_a_member_names_the_topic_that_it_may_not_read(
    client: Client, topic: str, bootstrap: str, login: Config
) -> None:
    assert TOPIC[client.name] in _heard(client, bootstrap, topic, "billing", login, TOPIC[client.name])


@each_client
def test_a_member_hears_that_it_may_not_use_the_group(client: Client, bootstrap: str, login: Config) -> None:
    assert GROUP[client.name] in _heard(client, bootstrap, "t", "secret", login, GROUP[client.name])


@each_client
def test_a_transactional_producer_hears_that_it_may_not_use_the_id(
    client: Client, bootstrap: str, login: Config
) -> None:
    with TRANSACTORS[client.name].start(bootstrap, "payments", login) as producer:
        for command in ("init", "begin"):
            producer.do(command)
        producer.send("t", 0, b"key", b"value")
        producer.do("commit")
    with TRANSACTORS[client.name].start(bootstrap, "others", login) as producer:
        with pytest.raises(Refused) as refused:
            producer.do("init")
        said = f"{refused.value} {producer.said()}"
    assert TRANSACTIONAL_ID[client.name] in said


@each_client
def test_a_transaction_fails_with_the_name_of_a_topic_and_the_next_producer_goes_on(
    client: Client, bootstrap: str, login: Config
) -> None:
    """With Apache Kafka, too, librdkafka 2.16 cannot abort: the coordinator has added none of the partitions, so that
    its EndTxn is refused with INVALID_TXN_STATE, which is fatal."""
    with TRANSACTORS[client.name].start(bootstrap, "payments", login) as producer:
        for command in ("init", "begin"):
            producer.do(command)
        producer.send("t", 0, b"key", b"value")
        with pytest.raises(Refused) as refused:
            producer.send("seen", 0, b"key", b"value")
            producer.do("commit")
        assert TOPIC[client.name] in str(refused.value)
        producer.open()
        for command in ("init", "begin"):
            producer.do(command)
        producer.send("t", 0, b"key", b"value")
        producer.do("commit")


@pytest.mark.parametrize("client", [FRANZ], ids=str)
def test_franz_go_goes_on_after_a_transaction_of_nothing_but_a_denied_topic(
    client: Client, bootstrap: str, login: Config
) -> None:
    """It can only with transactions of version 2, so that it has to learn which versions and features are offered."""
    with TRANSACTORS[client.name].start(bootstrap, "payments", login) as producer:
        for command in ("init", "begin"):
            producer.do(command)
        with pytest.raises(Refused) as refused:
            producer.send("seen", 0, b"key", b"value")
            producer.do("commit")
        assert TOPIC[client.name] in str(refused.value)
        for command in ("abort", "begin"):
            producer.do(command)
        producer.send("t", 0, b"key", b"value")
        producer.do("commit")


def _heard(client: Client, bootstrap: str, topic: str, group: str, config: Config, words: str) -> str:
    """The output of a member, once it has the words or the member has ended."""
    joining = CONSUMER_PROTOCOL if client is FRANZ else MEMBERS
    with joining[client.name].join(bootstrap, topic, group, config=config) as member:
        try:
            until(lambda: words in member.said() or not member.runs, [member])
        except PeerFailed as failed:
            return str(failed)
        return member.said()
