"""Certificates for tests, and how Apache Kafka is told of them."""

from pathlib import Path

import trustme
from cryptography.hazmat.primitives import serialization as to


def text(blob: trustme.Blob) -> str:
    """What a PEM file holds."""
    return blob.bytes().decode()


def kafka_store(home: Path, ca: trustme.CA, host: str) -> dict[str, str]:
    """The settings of a broker whose certificate names ``host``, with files in ``home``."""
    its = ca.issue_cert(host)
    key = to.load_pem_private_key(its.private_key_pem.bytes(), None)  # Kafka reads PKCS#8 only
    pkcs8 = key.private_bytes(to.Encoding.PEM, to.PrivateFormat.PKCS8, to.NoEncryption())
    store, trust = home / "broker.pem", home / "ca.pem"
    store.write_bytes(pkcs8 + b"".join(each.bytes() for each in its.cert_chain_pems))
    trust.write_bytes(ca.cert_pem.bytes())
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(store),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(trust),
    }
