"""The settings with which the clients log in, in each client's own names."""

from collections.abc import Mapping
from pathlib import Path

import trustme
from cryptography.hazmat.primitives import serialization as to

from tests.proxy.secured import MECHANISMS

Config = dict[str, str]

_JAAS = "org.apache.kafka.common.security."
_LOGIN_MODULES = {"PLAIN": "plain.PlainLoginModule"} | dict.fromkeys(MECHANISMS[1:], "scram.ScramLoginModule")
_WITHOUT_PROTOCOL = ("kafkajs", "sarama", "franz-go")
"""Programs without a setting for the protocol: the other settings imply it."""
SOON: Mapping[str, Config] = {"kafkajs": {"retries": "1"}, "sarama": {"retries": "1"}}
"""Settings with which a client gives up soon; the others do so by themselves."""


def password(client: str, mechanism: str, user: str, secret: str) -> Config:
    """The login of a user by PLAIN or SCRAM."""
    if client == "java":
        login = f'{_JAAS}{_LOGIN_MODULES[mechanism]} required username="{user}" password="{secret}";'
        return {"sasl.mechanism": mechanism, "sasl.jaas.config": login}
    if client == "aiokafka":
        return {"sasl_mechanism": mechanism, "sasl_plain_username": user, "sasl_plain_password": secret}
    return {"sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": secret}


def token(client: str, text: str, home: Path) -> Config:
    """The login by OAUTHBEARER with this token; Java reads it from a file in ``home``."""
    if client != "java":
        return {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token": text}
    module = f"{_JAAS}oauthbearer."
    file = home / "token"
    file.write_text(text)
    return {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": f"{module}OAuthBearerLoginModule required;",
        "sasl.login.callback.handler.class": f"{module}OAuthBearerLoginCallbackHandler",
        "sasl.oauthbearer.token.endpoint.url": file.as_uri(),
    }


def transport(client: str, protocol: str, ca: Path | None = None) -> Config:
    """The security protocol, and the CA that the client trusts."""
    config = {} if client in _WITHOUT_PROTOCOL else {"security.protocol": protocol}
    if ca is None:
        return config
    if client == "java":
        return config | {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(ca)}
    return config | {"ssl.ca.location": str(ca)}


def certificate(client: str, own: trustme.LeafCert, home: Path) -> Config:
    """The client's own certificate, in files in ``home``."""
    key, chain = home / "key.pem", home / "chain.pem"
    loaded = to.load_pem_private_key(own.private_key_pem.bytes(), None)  # Java reads PKCS#8 only
    key.write_bytes(loaded.private_bytes(to.Encoding.PEM, to.PrivateFormat.PKCS8, to.NoEncryption()))
    chain.write_bytes(b"".join(each.bytes() for each in own.cert_chain_pems))
    if client == "java":
        store = home / "store.pem"
        store.write_bytes(key.read_bytes() + chain.read_bytes())
        return {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(store)}
    return {"ssl.certificate.location": str(chain), "ssl.key.location": str(key)}
