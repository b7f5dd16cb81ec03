"""Certificates for tests, of a CA in memory that lasts a day. Needs the extra ``ottla[certificates]``.

    ca = ThrowawayCA()
    server = ca.server("127.0.0.1", certificates=True)      # a `ServerTLS`
    client = ca.client("alice")                               # a `TLS` with the certificate CN=alice

Rules:
- The CA's key never leaves the memory. OpenSSL reads the other keys from a private temporary file, which is deleted at
  once (`ottla._pem.file`).
- Clients that check strictly accept the certificates: Python does from 3.13 on (`ssl.VERIFY_X509_STRICT`).
- No two CAs have the same name. Otherwise clients of one would report a damaged signature of the other, and not a CA
  that they do not know.

Source: RFC 5280, sections 4.2.1.1 to 4.2.1.3 (key identifiers and usage).
"""

import datetime
import ipaddress
import secrets
from typing import TYPE_CHECKING

from ottla.errors import ConfigurationError
from ottla.tls import TLS, ServerTLS

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.x509 import (
        CertificateBuilder,
        ExtendedKeyUsage,
        GeneralName,
        KeyUsage,
        Name,
        SubjectAlternativeName,
    )

_EARLIER = datetime.timedelta(hours=1)
"""Certificates are valid from then on: clocks of containers may differ."""
_LASTS = datetime.timedelta(days=1)
_LONGEST_NAME = 64
"""Bytes of a common name (RFC 5280, ub-common-name)."""


class ThrowawayCA:
    """A CA that signs certificates for one broker and its clients.

    Attributes:
        pem: its own certificate, which clients trust.

    Raises:
        ConfigurationError: cryptography is missing.
    """

    def __init__(self) -> None:
        try:
            from cryptography import x509
            from cryptography.hazmat.primitives.asymmetric import ec
        except ModuleNotFoundError:
            raise ConfigurationError(
                "certificates=True needs cryptography: run pip install 'ottla[certificates]'"
            ) from None
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named(f"ottla's throwaway CA {secrets.token_hex(8)}")
        now = datetime.datetime.now(datetime.UTC)
        self._validity = now - _EARLIER, now + _LASTS
        public = self._key.public_key()
        builder = self._builder(self._name, public, _usage(signs_certificates=True))
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        self.pem = self._signed(builder)

    def server(self, *hosts: str, certificates: bool) -> ServerTLS:
        """A listener with a certificate for these hosts, and for the loopback address.

        Args:
            certificates: whether clients may show one, too.

        Raises:
            ConfigurationError: no certificate can name a host.
        """
        from cryptography import x509

        named = dict.fromkeys(("localhost", "127.0.0.1", "::1", *hosts))
        names = x509.SubjectAlternativeName([_host(each) for each in named])
        purpose = x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.SERVER_AUTH])
        chain, key = self._issue("ottla's broker", purpose, names)
        if not certificates:
            return ServerTLS(certificate=chain, key=key)
        return ServerTLS(certificate=chain, key=key, ca=self.pem, client_certificates="requested")

    def client(self, user: str | None = None) -> TLS:
        """A client that trusts this CA; with ``user`` it has the certificate ``CN=<user>``.

        Raises:
            ConfigurationError: no certificate can name the user.
        """
        from cryptography import x509

        if user is None:
            return TLS(ca=self.pem)
        if not 1 <= len(user.encode()) <= _LONGEST_NAME:
            raise ConfigurationError(f"user is {user!r}; the name in a certificate has 1 to {_LONGEST_NAME} bytes")
        purpose = x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.CLIENT_AUTH])
        chain, key = self._issue(user, purpose)
        return TLS(ca=self.pem, certificate=chain, key=key)

    def _issue(
        self, name: str, purpose: "ExtendedKeyUsage", names: "SubjectAlternativeName | None" = None
    ) -> tuple[str, str]:
        """A certificate and its key."""
        from cryptography import x509
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ec

        key = ec.generate_private_key(ec.SECP256R1())
        builder = self._builder(_named(name), key.public_key(), _usage(signs_certificates=False))
        builder = builder.add_extension(purpose, critical=False)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = builder.add_extension(issuer, critical=False)
        if names is not None:
            builder = builder.add_extension(names, critical=False)
        kind, no_password = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        return self._signed(builder), key.private_bytes(serialization.Encoding.PEM, kind, no_password).decode()

    def _builder(self, name: "Name", key: "EllipticCurvePublicKey", usage: "KeyUsage") -> "CertificateBuilder":
        from cryptography import x509

        begins, ends = self._validity
        return x509.CertificateBuilder(
            issuer_name=self._name,
            subject_name=name,
            public_key=key,
            serial_number=x509.random_serial_number(),
            not_valid_before=begins,
            not_valid_after=ends,
        ).add_extension(usage, critical=True)

    def _signed(self, builder: "CertificateBuilder") -> str:
        from cryptography.hazmat.primitives import hashes, serialization

        signed = builder.sign(self._key, hashes.SHA256())
        return signed.public_bytes(serialization.Encoding.PEM).decode()


def _named(common_name: str) -> "Name":
    from cryptography import x509

    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common_name)])


def _host(host: str) -> "GeneralName":
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        return x509.DNSName(host.encode("idna").decode())
    except UnicodeError:
        raise ConfigurationError(f"no certificate can name the host {host!r}") from None


def _usage(*, signs_certificates: bool) -> "KeyUsage":
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
