"""Certificates for tests, of a CA in memory that lasts a day. Needs the extra ``ottla[certificates]``.

    ca = ThrowawayCA()
    server = ca.server("127.0.0.1", certificates=True)      # a `ServerTLS`
    client = ca.client("alice")                               # a `TLS` with the certificate CN=alice

Rule: this module writes no key to a file.
"""

import datetime
import ipaddress
from typing import TYPE_CHECKING

from ottla.errors import ConfigurationError
from ottla.tls import TLS, ServerTLS

if TYPE_CHECKING:
    from cryptography.x509 import CertificateBuilder, ExtendedKeyUsage, Name

_EARLIER = datetime.timedelta(hours=1)
"""Certificates are valid from then on: clocks of containers may differ."""
_LASTS = datetime.timedelta(days=1)


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
        self._name = _named("ottla's throwaway CA")
        builder = self._builder(self._name, self._key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        self.pem = self._signed(builder)

    def server(self, host: str, *, certificates: bool) -> ServerTLS:
        """A listener with a certificate for this address and for ``localhost``.

        Args:
            certificates: whether clients may show one, too.
        """
        from cryptography import x509

        names: list[x509.GeneralName] = [x509.DNSName("localhost")]
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(host)))
        except ValueError:
            names.append(x509.DNSName(host))
        purpose = x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.SERVER_AUTH])
        chain, key = self._issue("ottla's broker", purpose, x509.SubjectAlternativeName(names))
        if not certificates:
            return ServerTLS(certificate=chain, key=key)
        return ServerTLS(certificate=chain, key=key, ca=self.pem, client_certificates="requested")

    def client(self, user: str | None = None) -> TLS:
        """A client that trusts this CA; with ``user`` it has the certificate ``CN=<user>``."""
        from cryptography import x509

        if user is None:
            return TLS(ca=self.pem)
        purpose = x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.CLIENT_AUTH])
        chain, key = self._issue(user, purpose)
        return TLS(ca=self.pem, certificate=chain, key=key)

    def _issue(self, name: str, purpose: "ExtendedKeyUsage", names: object = None) -> tuple[str, str]:
        """A certificate and its key."""
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ec

        key = ec.generate_private_key(ec.SECP256R1())
        builder = self._builder(_named(name), key.public_key()).add_extension(purpose, critical=False)
        if names is not None:
            builder = builder.add_extension(names, critical=False)  # type: ignore[arg-type]
        kind, no_password = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        return self._signed(builder), key.private_bytes(serialization.Encoding.PEM, kind, no_password).decode()

    def _builder(self, name: "Name", key: object) -> "CertificateBuilder":
        from cryptography import x509

        now = datetime.datetime.now(datetime.UTC)
        return x509.CertificateBuilder(
            issuer_name=self._name,
            subject_name=name,
            public_key=key,  # type: ignore[arg-type]
            serial_number=x509.random_serial_number(),
            not_valid_before=now - _EARLIER,
            not_valid_after=now + _LASTS,
        )

    def _signed(self, builder: "CertificateBuilder") -> str:
        from cryptography.hazmat.primitives import hashes, serialization

        signed = builder.sign(self._key, hashes.SHA256())
        return signed.public_bytes(serialization.Encoding.PEM).decode()


def _named(common_name: str) -> "Name":
    from cryptography import x509

    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common_name)])
