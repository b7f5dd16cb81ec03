"""A broker's configuration file: names of ours and Kafka's, their units, and mistakes."""

import logging
from dataclasses import fields
from pathlib import Path

import pytest
import trustme

from ottla.brokerlite.config import BrokerConfig, Sync
from ottla.brokerlite.config_file import KAFKAS, OWN, read_config
from ottla.config_file import ConfigFile
from ottla.errors import ConfigurationError
from ottla.listeners import ListenerConfig, SecurityProtocol
from ottla.sasl_server.settings import OAuthSettings, SaslSettings
from ottla.subject_mapping import SubjectMapping
from tests import tls

# What Apache Kafka 4.3 ships as config/server.properties, without its comments.
SHIPPED = """\
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
socket.request.max.bytes=104857600
log.dirs=/tmp/kraft-combined-logs
num.partitions=1
num.recovery.threads.per.data.dir=1
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
log.retention.check.interval.ms=300000
"""


def config_of(tmp_path: Path, text: str, name: str = "broker.toml", **options: object) -> BrokerConfig:
    (tmp_path / name).write_text(text)
    return read_config(ConfigFile.read(tmp_path / name), **options)


def test_a_file_says_the_same_as_options(tmp_path: Path) -> None:
    text = """
        listen = "127.0.0.1:19092"
        data = "kafka-data"
        advertise = "kafka.example:9092"
        node_id = 7
        partitions = 3
        auto-create = false
        group-delay = 0
        sync = "always"
        health = "127.0.0.1:0"
        log-level = "debug"
    """
    assert config_of(tmp_path, text) == BrokerConfig(
        host="127.0.0.1",
        port=19092,
        data=Path("kafka-data"),
        advertise="kafka.example:9092",
        node_id=7,
        default_partitions=3,
        auto_create=False,
        group_initial_rebalance_delay=0,
        sync=Sync.ALWAYS,
        health="127.0.0.1:0",
    )


def test_the_file_that_kafka_ships_can_be_used_as_it_is(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "ottla"):
        config = config_of(tmp_path, SHIPPED, "server.properties")
    assert config == BrokerConfig(
        host="0.0.0.0",
        advertise="localhost:9092",
        data=Path("/tmp/kraft-combined-logs"),
        topic_defaults={"retention.ms": "604800000"},
    )
    [told] = caplog.records
    assert "controller.quorum.bootstrap.servers" in vars(told)["names"]
    assert "num.partitions" not in vars(told)["names"]


@pytest.mark.parametrize("quote", ["", '"'])
def test_kafkas_names_have_kafkas_units(tmp_path: Path, quote: str) -> None:
    given = {
        "group.initial.rebalance.delay.ms": 250,
        "offsets.retention.minutes": 2,
        "transaction.max.timeout.ms": 1500,
        "log.retention.hours": 3,
        "log.roll.ms": 60000,
    }
    text = "".join(f"{quote}{name}{quote} = {value}\n" for name, value in given.items())
    config = config_of(tmp_path, text + 'log.cleanup.policy = ["compact", "delete"]\nlog.preallocate = false\n')
    assert config == BrokerConfig(
        group_initial_rebalance_delay=0.25,
        offsets_retention=120.0,
        transaction_max_timeout=1.5,
        topic_defaults={
            "retention.ms": str(3 * 3600 * 1000),
            "segment.ms": "60000",
            "cleanup.policy": "compact,delete",
            "preallocate": "false",
        },
    )


def test_of_several_names_the_finest_unit_counts_as_in_kafka(tmp_path: Path) -> None:
    text = "log.retention.ms=-1\nlog.retention.hours=168\nlog.retention.minutes=5\n"
    assert config_of(tmp_path, text, "a.properties").topic_defaults == {"retention.ms": "-1"}
    assert config_of(tmp_path, text[20:], "b.properties").topic_defaults == {"retention.ms": "300000"}


def test_options_override_the_file(tmp_path: Path) -> None:
    config = config_of(tmp_path, 'listen = "127.0.0.1:1"\npartitions = 2\n', listen="127.0.0.1:2", node_id=None)
    assert (config.port, config.default_partitions, config.node_id) == (2, 2, 1)


def test_every_setting_has_a_name() -> None:
    named = {setting.field for setting in (*OWN.values(), *KAFKAS.values())}
    without = {"host", "port", "listeners", "cluster_id", "pipeline", "topic_defaults"}
    assert named - {"listen"} == {field.name for field in fields(BrokerConfig)} - without


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("listen = ", "is not TOML"),
        ("speed = 3", "'speed' is not a setting of the broker: docs/broker.md lists them"),
        ('state = "d"', "'state' is not a setting of the broker: it is one of the proxy"),
        ("announce = true", "it is only an option of the command line: --announce"),
        ('listen = "localhost"', "has no port: write host:port"),
        ('listen = "localhost:1"\nhealth = "127.0.0.1:1"', "health has the port of listen, 1"),
        ("log.retention.hours = -5", "log.retention.hours is -5"),
        ("partition = 3", "'partition' is not a setting of the broker: do you mean partitions?"),
        ("num.partition = 3", "'num.partition' is not a setting of the broker: do you mean num.partitions?"),
        ('partitions = "many"', "partitions is 'many'; it must be an integer"),
        ("auto-create = 1", "auto-create is 1; it must be true or false"),
        ("group-delay = true", "group-delay is True; it must be a number of seconds"),
        ('sync = "often"', "sync is 'often'; it must be always, segment or never"),
        ("partitions = 0", "partitions is 0; it must be 1 to 10000"),
        ("num.partitions = 0", "num.partitions is 0; it must be 1 to 10000"),
        ("partitions = 1\nnum.partitions = 2", "partitions and a name of Kafka's say the same"),
        ('log.retention.ms = "soon"', "log.retention.ms is 'soon'; it must be an integer"),
        (
            'log.cleanup.policy = "never"',
            "log.cleanup.policy is 'never'; it must be delete or compact, or both: delete,compact",
        ),
        ('log.dirs = "/a,/b"', "log.dirs is '/a,/b'; it must be one folder"),
        ('super.users = "User:admin"', "super.users has no effect without acls"),
        ('acls = true\nsuper-users = ["admin"]', "super-users has 'admin'; it must be a type and a name"),
        ('authorizer.class.name = "kafka.security.authorizer.AclAuthorizer"', "it must be org.apache.kafka.metadata"),
        ("partitions = 1\npartitions = 2\nsync = 'always'", ": partitions is there twice (at line 2"),
        (
            'listeners = "SASL_PLAINTEXT://:9092"\nsasl.enabled.mechanisms = "PLAIN"\nssl.keystore.location = "k"',
            "ssl.keystore.location is given, but no listener is SASL_SSL: write listeners=SASL_SSL",
        ),
        (
            'sasl.enabled.mechanisms = "PLAIN"\nssl.keystore.location = "k"',
            "ssl.keystore.location is given, but no listener is SASL_SSL: write listeners=SASL_SSL",
        ),
        ('ssl.keystore.location = "k"', "ssl.keystore.location is given, but no listener is SSL: write listeners=SSL"),
        (
            'listeners = "SASL_SSL://:9092"',
            "listener SASL_SSL: give its certificate and its key, in PEM, as ssl.keystore",
        ),
        ('listeners = "SASL_PLAINTEXT://:9092"', "give its mechanisms as sasl.enabled.mechanisms"),
        ('listeners = "PLAINTEXT://a:1,PLAINTEXT://b:2"', "has two listeners of the name PLAINTEXT"),
        ('listeners = "CLIENTS://a:1"', "CLIENTS is not a security protocol: give CLIENTS:SSL or another one in"),
        ('listeners = "SSL://:1"\nssl.keystore.type = "JKS"', "ssl.keystore.type is JKS; it must be PEM"),
        ('listeners = "SSL://:1"\nssl.keystore.location = "/no/such.pem"', "certificate '/no/such.pem' cannot be read"),
        ('ssl.cipher.suites = "x"', "ssl.cipher.suites: this broker has no such setting"),
        ('listener.name.sasl.plain.sasl.jaas.config = "secret"', "passwords do not belong into this file"),
        ('sasl.jaas.config = "secret"', "add users with ottla broker users add"),
        (
            'listeners = "SASL_PLAINTEXT://:1"\nsasl.enabled.mechanisms = "GSSAPI"',
            "'GSSAPI' is not a mechanism: choose of PLAIN, SCRAM-SHA-256",
        ),
        (
            'listeners = "SASL_PLAINTEXT://:1"\nsasl.enabled.mechanisms = "OAUTHBEARER"',
            "OAUTHBEARER needs the keys that sign tokens: give sasl.oauthbearer.jwks.endpoint.url",
        ),
        (
            'listeners = "SASL_PLAINTEXT://:1"\nsasl.enabled.mechanisms = "PLAIN"\nconnections.max.reauth.ms = "soon"',
            "connections.max.reauth.ms is 'soon'; it must be an integer",
        ),
        ("max.connections.per.ip = 5", "bounds all connections together: use max.connections"),
        ("max.connection.creation.rate = 5", "bounds all connections together: use max.connections"),
        ('max.connections.per.ip.overrides = "a:5"', "bounds all connections together: use max.connections"),
        ('listeners = "localhost:9092"', "is not a listener, as in PLAINTEXT://localhost:9092"),
    ],
)
def test_a_mistake_is_named_with_its_file(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        config_of(tmp_path, text)
    assert says in str(raised.value)
    assert str(raised.value).count(str(tmp_path / "broker.toml")) == 1


def test_a_default_of_topics_with_a_field_of_its_own_is_named() -> None:
    with pytest.raises(ConfigurationError, match=r"topic_defaults has segment\.bytes: use segment_bytes"):
        BrokerConfig(topic_defaults={"segment.bytes": "1048576"})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("broker.toml", 'acls = true\nsuper-users = ["User:admin", "User:ops"]\nallow-if-no-acl = true'),
        (
            "server.properties",
            "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer\n"
            "super.users=User:admin; User:ops;\nallow.everyone.if.no.acl.found=true\n",
        ),
    ],
)
def test_acls_are_switched_on_by_our_names_and_kafkas(tmp_path: Path, name: str, text: str) -> None:
    config = config_of(tmp_path, text, name)
    assert (config.acls, config.super_users, config.allow_if_no_acl) == (True, ("User:admin", "User:ops"), True)
    assert config_of(tmp_path, "").acls is False


def test_listeners_have_settings_of_their_own(tmp_path: Path) -> None:
    ca = trustme.CA()
    (tmp_path / "server.pem").write_text(tls.text(ca.issue_cert("localhost").private_key_and_cert_chain_pem))
    (tmp_path / "ca.pem").write_text(tls.text(ca.cert_pem))
    text = f"""
        listeners=PLAINTEXT://127.0.0.1:9092,APPS://:9093,USERS://:9094,CONTROLLER://:9095
        advertised.listeners=APPS://apps.example:19093,USERS://users.example:19094
        controller.listener.names=CONTROLLER
        listener.security.protocol.map=PLAINTEXT:PLAINTEXT,APPS:SSL,USERS:SASL_SSL,CONTROLLER:PLAINTEXT
        ssl.keystore.type=PEM
        ssl.keystore.location={tmp_path}/server.pem
        ssl.truststore.location={tmp_path}/ca.pem
        ssl.client.auth=required
        ssl.principal.mapping.rules=RULE:^CN=(.*?),.*$/$1/L,DEFAULT
        sasl.enabled.mechanisms=SCRAM-SHA-512,PLAIN
        connections.max.reauth.ms=3600000
        listener.name.users.plain.connections.max.reauth.ms=1500
        connection.failed.authentication.delay.ms=0
    """
    plain, apps, users = config_of(tmp_path, text, "server.properties").all_listeners
    assert (plain.protocol, plain.tls, plain.sasl, plain.address) == ("PLAINTEXT", None, None, "127.0.0.1:9092")
    assert (apps.name, apps.protocol, apps.advertised(9093)) == ("APPS", "SSL", ("apps.example", 19093))
    assert apps.tls is not None and apps.tls.client_certificates == "required"
    assert apps.subjects is not None and apps.subjects.name("CN=App One,O=ottla") == "app one"
    assert users.tls is not None and users.tls.client_certificates == "none", "ssl.client.auth needs the name of one"
    assert users.sasl is not None and users.sasl.mechanisms == ("SCRAM-SHA-512", "PLAIN")
    assert users.sasl.max_reauth == {"SCRAM-SHA-512": 3600.0, "PLAIN": 1.5}
    assert users.sasl.failure_delay == 0.0


def test_a_file_of_the_days_of_zookeeper_is_accepted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    text = """
        broker.id=3
        num.network.threads=3
        inter.broker.protocol.version=3.9
        log.message.format.version=3.0
        zookeeper.connect=localhost:2181
        zookeeper.connection.timeout.ms=18000
        zookeeper.ssl.client.enable=false
        zookeeper.clientCnxnSocket=org.apache.zookeeper.ClientCnxnSocketNetty
    """
    assert config_of(tmp_path, text, "server.properties").node_id == 3
    [record] = caplog.records
    assert record.getMessage() == "settings of Kafka without effect on this broker"
    assert "zookeeper.connect, " in record.__dict__["names"]


def test_an_option_overrides_the_address_of_the_only_listener(tmp_path: Path) -> None:
    text = 'listeners = "SASL_PLAINTEXT://127.0.0.1:1"\nsasl.enabled.mechanisms = "PLAIN"\n'
    [listener] = config_of(tmp_path, text, listen="127.0.0.1:2").all_listeners
    assert (listener.port, listener.protocol) == (2, "SASL_PLAINTEXT")
    with pytest.raises(ConfigurationError, match="listeners has several addresses, which listen cannot override"):
        several = text.replace('"SASL_PLAINTEXT://', '"PLAINTEXT://:3,SASL_PLAINTEXT://')
        config_of(tmp_path, several, listen="127.0.0.1:2")


OAUTH = """
    listeners=SASL_PLAINTEXT://:9092
    sasl.enabled.mechanisms=OAUTHBEARER
    sasl.oauthbearer.jwks.endpoint.url=https://idp.example/keys
"""


@pytest.mark.parametrize("prefix", ["", "listener.name.sasl_plaintext.", "listener.name.sasl_plaintext.oauthbearer."])
def test_every_setting_of_oauthbearer_may_be_for_a_listener_and_the_mechanism(tmp_path: Path, prefix: str) -> None:
    text = (
        OAUTH.replace("sasl.oauthbearer.", prefix + "sasl.oauthbearer.")
        + f"""
        {prefix}sasl.oauthbearer.expected.audience=kafka,kafka-2
        {prefix}sasl.oauthbearer.expected.issuer=https://idp.example
        {prefix}sasl.oauthbearer.sub.claim.name=user
        {prefix}sasl.oauthbearer.clock.skew.seconds=3
        {prefix}sasl.oauthbearer.jwks.endpoint.refresh.ms=60000
    """
    )
    [listener] = config_of(tmp_path, text, "server.properties").all_listeners
    assert listener.sasl is not None
    assert listener.sasl.oauth == OAuthSettings(
        jwks="https://idp.example/keys",
        audience=("kafka", "kafka-2"),
        issuer="https://idp.example",
        subject="user",
        clock_skew=3.0,
        refresh=60.0,
    )


SERVED = """
    listeners=LOCAL://127.0.0.1:9092,APPS://:9093,USERS://:9094,CONTROLLER://:9095
    controller.listener.names=CONTROLLER
    listener.security.protocol.map=LOCAL:PLAINTEXT,APPS:SSL,USERS:SASL_SSL
    ssl.keystore.location={folder}/server.pem
    sasl.enabled.mechanisms=PLAIN
    connections.max.reauth.ms=1000
    listener.name.controller.ssl.client.auth=required
    listener.name.local.ssl.client.auth=none
"""
ONE = SERVED.replace("APPS://:9093,", "")
TRUST = "ssl.truststore.location={folder}/ca.pem"


@pytest.mark.parametrize(
    ("text", "unused"),
    [
        (SERVED, "listener.name.local.ssl.client.auth=required"),
        (SERVED, "listener.name.users.plain.ssl.client.auth=required"),
        (SERVED, "listener.name.users.scram-sha-512.connections.max.reauth.ms=1"),
        (SERVED, "listener.name.users.oauthbearer.sasl.oauthbearer.expected.audience=kafka"),
        (SERVED, "listener.name.users.plain.sasl.enabled.mechanisms=PLAIN"),
        (SERVED, "listener.name.users.plain.connection.failed.authentication.delay.ms=1"),
        (SERVED, "listener.name.apps.sasl.enabled.mechanisms=SCRAM-SHA-512"),
        (SERVED, "listener.name.local.connections.max.reauth.ms=1"),
        (SERVED, "sasl.oauthbearer.expected.issuer=https://idp.example"),
        (SERVED, TRUST),
        (SERVED, "ssl.principal.mapping.rules=DEFAULT"),
        (f"{SERVED}\n{TRUST}\nlistener.name.users.ssl.client.auth=required", "ssl.principal.mapping.rules=DEFAULT"),
        (f"{ONE}\n{TRUST}", "ssl.client.auth=required"),
        ("listeners=PLAINTEXT://:9092", "listener.name.plaintext.connections.max.reauth.ms=1"),
    ],
)
def test_a_setting_of_security_without_an_effect_is_refused(tmp_path: Path, text: str, unused: str) -> None:
    ca = trustme.CA()
    (tmp_path / "server.pem").write_text(tls.text(ca.issue_cert("localhost").private_key_and_cert_chain_pem))
    (tmp_path / "ca.pem").write_text(tls.text(ca.cert_pem))
    with pytest.raises(ConfigurationError, match=rf"server\.properties: {unused.partition('=')[0]} has no effect: "):
        config_of(tmp_path, f"{text}\n{unused}\n".format(folder=tmp_path), "server.properties")
    if TRUST not in text:
        config_of(tmp_path, text.format(folder=tmp_path), "server.properties")


@pytest.mark.parametrize("value", ["", ","])
@pytest.mark.parametrize("name", ["sasl.oauthbearer.expected.issuer", "sasl.oauthbearer.expected.audience"])
def test_an_empty_setting_of_security_is_refused(tmp_path: Path, name: str, value: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{name} is empty: give its value, or leave it out"):
        config_of(tmp_path, f"{OAUTH}\n{name}={value}\n", "server.properties")


def test_settings_in_code_without_an_effect_are_refused() -> None:
    plain = SaslSettings(mechanisms=("PLAIN",))
    for broken, says in (
        (lambda: SaslSettings(mechanisms=("PLAIN",), oauth=OAuthSettings(jwks="k")), "oauth is given, but"),
        (lambda: SaslSettings(mechanisms=("PLAIN",), max_reauth={"OAUTHBEARER": 1.0}), "max_reauth has OAUTHBEARER"),
        (
            lambda: ListenerConfig(protocol=SecurityProtocol.SASL_PLAINTEXT, sasl=plain, subjects=SubjectMapping()),
            "subjects .* have no effect",
        ),
    ):
        with pytest.raises(ConfigurationError, match=says):
            broken()
