"""Certificates for tests, and Apache Kafka's settings for them."""

import datetime
from pathlib import Path

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives import serialization as to
from cryptography.hazmat.primitives.asymmetric import ec

from ottla.tls import TLS, ClientCertificates, ServerTLS

CA = "ca.pem"
"""The file with the CA of `kafka_store`."""


def text(blob: trustme.Blob) -> str:
    """The contents of a PEM file."""
    return blob.bytes().decode()


def serving(ca: trustme.CA, name: str, clients: ClientCertificates = "none") -> ServerTLS:
    """A server with a certificate for this name, and its requirement for client certificates."""
    its = ca.issue_cert(name)
    chain = "".join(map(text, its.cert_chain_pems))
    trusted = None if clients == "none" else text(ca.cert_pem)
    return ServerTLS(certificate=chain, key=text(its.private_key_pem), ca=trusted, client_certificates=clients)


def of_client(ca: trustme.CA, own: trustme.LeafCert | None = None) -> TLS:
    """A client that trusts the CA, and has a certificate of its own if given."""
    if own is None:
        return TLS(ca=text(ca.cert_pem))
    chain = "".join(map(text, own.cert_chain_pems))
    return TLS(ca=text(ca.cert_pem), certificate=chain, key=text(own.private_key_pem))


def without_subject(ca: trustme.CA, name: str) -> trustme.LeafCert:
    """A certificate with an empty subject, whose owner is in `subjectAltName` alone, as in SPIFFE's."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder(
            issuer_name=x509.load_pem_x509_certificate(ca.cert_pem.bytes()).subject,
            subject_name=x509.Name([]),
            public_key=key.public_key(),
            serial_number=x509.random_serial_number(),
            not_valid_before=now - datetime.timedelta(days=1),
            not_valid_after=now + datetime.timedelta(days=1),
        )
        .add_extension(x509.SubjectAlternativeName([x509.UniformResourceIdentifier(name)]), critical=True)
        .sign(to.load_pem_private_key(ca.private_key_pem.bytes(), None), hashes.SHA256())  # type: ignore[arg-type]
    )
    own = key.private_bytes(to.Encoding.PEM, to.PrivateFormat.PKCS8, to.NoEncryption())
    return trustme.LeafCert(own, made.public_bytes(to.Encoding.PEM), [])


def kafka_store(home: Path, ca: trustme.CA, host: str) -> dict[str, str]:
    """The settings of a broker whose certificate names ``host``, with files in ``home``."""
    its = ca.issue_cert(host)
    key = to.load_pem_private_key(its.private_key_pem.bytes(), None)  # Kafka reads PKCS#8 only
    pkcs8 = key.private_bytes(to.Encoding.PEM, to.PrivateFormat.PKCS8, to.NoEncryption())
    store, trust = home / "broker.pem", home / CA
    store.write_bytes(pkcs8 + b"".join(each.bytes() for each in its.cert_chain_pems))
    trust.write_bytes(ca.cert_pem.bytes())
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(store),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(trust),
    }
