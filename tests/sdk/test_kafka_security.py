"""Kafka's names for TLS and SASL: the configuration of a Java program or of librdkafka as arguments of `connect`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import trustme

from ottla import TLS, ClientCredentials, OAuthBearer, Plain, ScramSha256, ScramSha512, from_kafka_config
from ottla.errors import ConfigurationError
from tests.tls import text

CA = trustme.CA()
OWN = CA.issue_cert("service")
TRUST, CHAIN, KEY = text(CA.cert_pem), "".join(map(text, OWN.cert_chain_pems)), text(OWN.private_key_pem)
PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="s\\"; =";'
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required\n  username='alice'\n  password=secret ;"
IDP, MODULE = "https://idp.example.com/token", "org.apache.kafka.common.security.oauthbearer"
OAUTH_JAAS = (
    f"{MODULE}.OAuthBearerLoginModule required clientId=billing clientSecret='hush' scope=kafka "
    "extension_logicalCluster=lkc-1;"
)
OAUTH = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "OAUTHBEARER",
    "sasl.oauthbearer.token.endpoint.url": IDP,
    "sasl.oauthbearer.client.id": "billing",
    "sasl.oauthbearer.client.secret": "hush",
}


@pytest.mark.parametrize("between", ["", " ", "\t"])
def test_pem_that_a_properties_file_continues_over_lines_has_its_lines_again(between: str) -> None:
    names = {"ssl.truststore.certificates": TRUST, "ssl.keystore.certificate.chain": CHAIN, "ssl.keystore.key": KEY}
    joined = {name: between.join(value.splitlines()) for name, value in names.items()}
    tls = from_kafka_config({"security.protocol": "SSL", **joined})["tls"]
    assert [each.split() for each in (tls.ca, tls.certificate, tls.key)] == [
        each.split() for each in (TRUST, CHAIN, KEY)
    ]


@pytest.mark.parametrize("name", ["ssl.key.pem", "ssl.keystore.key"])
def test_a_text_that_is_no_pem_is_not_taken_for_a_file_and_shown(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"'{name}' is not PEM") as caught:
        from_kafka_config({"security.protocol": "SSL", "ssl.certificate.pem": CHAIN, name: "MIISecret"})
    assert "MIISecret" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "tls"),
    [
        ({}, TLS()),
        ({"ssl.ca.pem": TRUST}, TLS(ca=TRUST)),
        ({"ssl.truststore.certificates": TRUST, "ssl.truststore.type": "PEM"}, TLS(ca=TRUST)),
        ({"ssl.endpoint.identification.algorithm": ""}, TLS(check_hostname=False)),
        ({"ssl.endpoint.identification.algorithm": "none"}, TLS(check_hostname=False)),
        ({"ssl.endpoint.identification.algorithm": "https"}, TLS()),
        ({"ssl.certificate.pem": CHAIN, "ssl.key.pem": KEY}, TLS(certificate=CHAIN, key=KEY)),
        (
            {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": CHAIN, "ssl.keystore.key": KEY},
            TLS(certificate=CHAIN, key=KEY),
        ),
        ({"enable.ssl.certificate.verification": True}, TLS()),
    ],
)
@pytest.mark.parametrize("protocol", ["SSL", "ssl"])
def test_names_of_tls_become_one_argument(given: Mapping[str, Any], tls: TLS, protocol: str) -> None:
    assert from_kafka_config({"security.protocol": protocol, **given}) == {"tls": tls}


def test_files_are_named_as_java_and_librdkafka_name_them(tmp_path: Path) -> None:
    ca, both, chain, key = (str(tmp_path / each) for each in ("ca.pem", "both.pem", "chain.pem", "key.pem"))
    for path, holds in ((ca, TRUST), (both, KEY + CHAIN), (chain, CHAIN), (key, KEY)):
        Path(path).write_text(holds)
    java: dict[str, Any] = {"ssl.truststore.type": "PEM", "ssl.truststore.location": ca, "ssl.keystore.location": both}
    assert from_kafka_config(java | {"security.protocol": "SSL"}) == {"tls": TLS(ca=ca, certificate=both)}
    librdkafka: dict[str, Any] = {"ssl.ca.location": ca, "ssl.certificate.location": chain, "ssl.key.location": key}
    assert from_kafka_config(librdkafka | {"security.protocol": "SSL"}) == {
        "tls": TLS(ca=ca, certificate=chain, key=key)
    }


@pytest.mark.parametrize(
    ("given", "sasl"),
    [
        ({"sasl.mechanism": "PLAIN", "sasl.username": "alice", "sasl.password": "s"}, Plain("alice", "s")),
        ({"sasl.mechanisms": "SCRAM-SHA-256", "sasl.username": "a", "sasl.password": "s"}, ScramSha256("a", "s")),
        ({"sasl.mechanism": "PLAIN", "sasl.jaas.config": PLAIN}, Plain("alice", 's"; =')),
        ({"sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": SCRAM}, ScramSha512("alice", "secret")),
        (OAUTH, OAuthBearer(ClientCredentials(IDP, "billing", "hush", urlencode_header=False))),
        (
            OAUTH | {"sasl.oauthbearer.header.urlencode": "true"},
            OAuthBearer(ClientCredentials(IDP, "billing", "hush", urlencode_header=True)),
        ),
        (
            {
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.oauthbearer.token.endpoint.url": IDP,
                "sasl.login.callback.handler.class": f"{MODULE}.secured.OAuthBearerLoginCallbackHandler",
                "sasl.jaas.config": OAUTH_JAAS,
            },
            OAuthBearer(
                ClientCredentials(IDP, "billing", "hush", scope="kafka", urlencode_header=False),
                {"logicalCluster": "lkc-1"},
            ),
        ),
        (
            OAUTH
            | {
                "sasl.oauthbearer.method": "OIDC",
                "sasl.oauthbearer.scope": "kafka",
                "sasl.oauthbearer.extensions": "logicalCluster=lkc-1, identityPoolId=pool-1",
                "https.ca.pem": TRUST,
            },
            OAuthBearer(
                ClientCredentials(IDP, "billing", "hush", scope="kafka", tls=TLS(ca=TRUST), urlencode_header=False),
                {"logicalCluster": "lkc-1", "identityPoolId": "pool-1"},
            ),
        ),
    ],
)
@pytest.mark.parametrize(("protocol", "tls"), [("SASL_PLAINTEXT", {}), ("SASL_SSL", {"tls": TLS()})])
def test_names_of_sasl_become_one_argument(
    given: Mapping[str, Any], sasl: Any, protocol: str, tls: dict[str, Any]
) -> None:
    assert from_kafka_config({**given, "security.protocol": protocol}) == {"sasl": sasl} | tls


def test_what_the_protocol_makes_idle_is_left_out_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    config = from_kafka_config({"ssl.truststore.location": "/etc/trust.jks", "sasl.mechanism": "PLAIN"})
    assert config == {}
    assert config.left_out == dict.fromkeys(
        ["ssl.truststore.location", "sasl.mechanism"], "security.protocol is PLAINTEXT"
    )
    assert "ssl.truststore.location" in caplog.text


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (
            {"security.protocol": "TLS"},
            "'security.protocol': 'TLS' is not one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL",
        ),
        (
            {"security.protocol": "SASL_SSL"},
            "'sasl.mechanism' is GSSAPI by default: ottla has PLAIN, SCRAM",
        ),
        (
            {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.client.id": "a"},
            "needs 'sasl.oauthbearer.token.endpoint.url', 'sasl.oauthbearer.client.secret': or use sasl=OAuthBearer",
        ),
        (
            OAUTH | {"sasl.login.callback.handler.class": "com.example.Handler"},
            "can only be oidc and .*OAuthBearerLoginCallbackHandler here: use sasl=OAuthBearer",
        ),
        (OAUTH | {"sasl.jaas.config": OAUTH_JAAS}, "'sasl.oauthbearer.client.id' and a synonym"),
        (OAUTH | {"sasl.oauthbearer.token.endpoint.url": "idp"}, "the token endpoint must be a URL"),
        (OAUTH | {"sasl.oauthbearer.sub.claim.name": "x"}, "'sasl.oauthbearer.sub.claim.name' has no meaning here"),
        ({"security.protocol": "SSL", "ssl.truststore.type": "JKS"}, "can only be PEM here, not 'JKS': .*convert it"),
        ({"security.protocol": "SSL", "ssl.truststore.password": "hush"}, "'ssl.truststore.password' .*convert it"),
        (
            {"security.protocol": "SSL", "ssl.ca.location": "/no/ca.pem"},
            "'ssl.ca.location': tls: ca '/no/ca.pem' cannot be",
        ),
        (
            {"security.protocol": "SSL", "ssl.ca.pem": TRUST, "ssl.ca.location": "x"},
            "'ssl.ca.pem' and 'ssl.ca.location' have the same meaning",
        ),
        ({"security.protocol": "SSL", "enable.ssl.certificate.verification": "false"}, "always verified"),
        (
            {"security.protocol": "SSL", "ssl.cipher.suites": "x"},
            "'ssl.cipher.suites' has no meaning here.*lenient=True",
        ),
        (
            {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "a"},
            "'sasl.username' and 'sasl.password', or 'sasl.jaas.config': sasl: the password for PLAIN",
        ),
        (
            {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": SCRAM},
            "the login module is ScramLoginModule, which is not for sasl.mechanism=PLAIN",
        ),
        (
            {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": "hush"},
            "it must look like",
        ),
        (
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.jaas.config": SCRAM.replace(";", ' tokenauth="true";'),
            },
            "'sasl.jaas.config': tokenauth needs delegation tokens, which ottla does not have yet",
        ),
        (
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.jaas.config": SCRAM.replace(";", ' serviceName="kafka";'),
            },
            "'serviceName in sasl.jaas.config' has no meaning here",
        ),
        (OAUTH | {"sasl.oauthbearer.header.urlencode": "maybe"}, "urlencode' must be true or false, not 'maybe'"),
        (OAUTH | {"sasl.oauthbearer.token.endpoint.url": "https://[::1/token"}, "the token endpoint must be a URL"),
    ],
)
def test_what_cannot_be_is_refused_and_no_secret_is_shown(given: Mapping[str, Any], says: str) -> None:
    with pytest.raises(ConfigurationError, match=says) as raised:
        from_kafka_config(given)
    assert "hush" not in str(raised.value) and "=secret" not in str(raised.value)


def test_a_lenient_reading_leaves_out_what_tunes() -> None:
    config = from_kafka_config({"security.protocol": "SSL", "ssl.cipher.suites": "x"}, lenient=True)
    assert config == {"tls": TLS()} and list(config.left_out) == ["ssl.cipher.suites"]
