"""TLS without a socket: bytes in, bytes out, for a client or a server.

    tls = TLS(ca="/etc/kafka/ca.pem")                  # once
    secure = tls.connection("broker-1.example.com")    # for each connection; a server's: `ServerTLS(…).connection()`
    send(secure.begin())
    send(secure.feed(received))                        # whenever bytes arrive; in the end `secure.agreed`
    send(secure.seal(parts))
    data = secure.read(65536)                          # until it is empty

Rules:
- An untrusted certificate, or one for another host, ends the connection. The chain is always verified; only
  `check_hostname=False` turns off the check of the host name.
- TLS 1.2 is the oldest supported version.
- Each new connection checks the files again: certificates can be renewed without a restart. If the new contents cannot
  be used, the last usable ones are.
- Alerts of the peer, and OpenSSL's errors, are translated into messages that say what to do (`AuthenticationFailed`).

This is the only module that uses `ssl`.

Source: SslTransportLayer.java, DefaultSslEngineFactory.java; RFC 8446, section 6.2 (alerts).
"""

import contextlib
import os
import ssl
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Generic, Literal, Protocol, TypeVar

from ottla._pem import Pem, file, is_text, named, stamp, text
from ottla.errors import AuthenticationFailed, ConfigurationError, ConnectionLost
from ottla.path_checks import is_exposed
from ottla.unknown_options import naming_options

_PIECE = 64 * 2**10
"""Bytes that are encrypted at once: they fit into a processor's cache twice."""

Bytes = bytes | bytearray | memoryview


class TlsConnection:
    """One side of one connection; it only turns bytes into bytes.

    Args:
        server_hostname: (client only) the host that the broker's certificate has to name; also sent as SNI.
        server_side: whether this is the listening side.
        shows_certificate: whether this side has a certificate.

    Attributes:
        agreed: the handshake is done; sealed and read bytes are the application's.
        ended: the other side has ended TLS, and all that it sent before is read. It may wait for this side to do the
            same before it closes the connection, as Python's asyncio does.

    Raises:
        AuthenticationFailed: no certificate can name ``server_hostname``.
    """

    def __init__(
        self,
        context: ssl.SSLContext,
        *,
        server_hostname: str | None = None,
        server_side: bool = False,
        shows_certificate: bool = True,
    ) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        try:
            self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side, server_hostname)
        except (ValueError, TypeError) as error:  # TypeError for a null byte
            raise AuthenticationFailed(f"no certificate can name the host {server_hostname!r:.80}: {error}") from None
        self._other = "the client" if server_side else "the broker"
        self._expected = server_hostname or ""
        self._shows_certificate = shows_certificate
        self.agreed = self.ended = False
        self._trusted = False
        """The other side has sent data, so it trusts this one."""

    def begin(self) -> bytes:
        """Return the client's first bytes."""
        return self.feed(b"")

    def feed(self, data: Bytes) -> bytes:
        """Take incoming bytes; return the bytes to send in response, usually none.

        Raises:
            AuthenticationFailed: one side does not trust the other, or they share no version of TLS.
            ConnectionLost: the bytes were changed on the way, or the other side has ended TLS.
        """
        self._incoming.write(data)
        if not self.agreed:
            try:
                self._tls.do_handshake()
                self.agreed = True
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError as error:
                raise self._failure(error) from None
        return self._outgoing.read()

    def read(self, size: int) -> bytes:
        """Return decrypted bytes, at most ``size``; empty if there are none for now, or `ended`.

        Raises the errors of `feed`.
        """
        try:
            data = self._tls.read(size)
        except ssl.SSLWantReadError:
            return b""
        except ssl.SSLZeroReturnError:  # both sides have ended TLS
            data = b""
        except ssl.SSLError as error:
            raise self._failure(error) from None
        self.ended = not data
        self._trusted = self._trusted or not self.ended
        return data

    def read_into(self, room: memoryview) -> int:
        """Like `read`, into ``room``; returns the number of bytes."""
        try:
            count = int(self._tls.read(len(room), room))
        except ssl.SSLWantReadError:
            return 0
        except ssl.SSLZeroReturnError:
            count = 0
        except ssl.SSLError as error:
            raise self._failure(error) from None
        self.ended = not count
        self._trusted = self._trusted or not self.ended
        return count

    def seal(self, parts: Sequence[Bytes]) -> tuple[bytes, ...]:
        """Encrypt the application's bytes."""
        sealed = []
        for part in parts:
            view = memoryview(part)
            for start in range(0, len(view), _PIECE):
                self._tls.write(view[start : start + _PIECE])
                sealed.append(self._outgoing.read())
        return tuple(sealed)

    @property
    def subject(self) -> str | None:
        """The subject of the other side's certificate, in Kafka's notation (``CN=app,O=ottla``).

        ``None``: it has shown no certificate. Empty: the certificate names its owner only in `subjectAltName`.
        """
        if not (certificate := self._tls.getpeercert()):
            return None
        parts = certificate.get("subject", ())
        names = (
            "+".join(_TYPES.get(kind, kind) + "=" + _escaped(value) for kind, value in rdn) for rdn in reversed(parts)
        )
        return ",".join(names)

    def finish(self) -> bytes:
        """The last bytes to send: the end of TLS, or after a failure on this side the alert that says why."""
        with contextlib.suppress(ssl.SSLError):  # the other side has not ended TLS yet, or there was no handshake
            self._tls.unwrap()
        return self._outgoing.read()

    def _failure(self, error: ssl.SSLError) -> AuthenticationFailed | ConnectionLost:
        if isinstance(error, ssl.SSLCertVerificationError):
            return AuthenticationFailed(self._not_trusted(error))
        if isinstance(error, ssl.SSLZeroReturnError | ssl.SSLEOFError):  # for example a peer that shuts down
            return ConnectionLost(f"TLS: {self._other} has ended it")
        reason = error.reason or str(error)
        words = reason.lower().replace("_", " ")
        # In TLS 1.3 a server checks the client's certificate when the client has agreed already. So an alert may come
        # later, but not after data, and only an alert does: other bytes were damaged, or come from a middlebox.
        if self._trusted or (self.agreed and "ALERT_" not in reason):
            return ConnectionLost(f"TLS: {words}")
        kind = reason.partition("ALERT_")[2] or reason
        if kind in _BAD_CERTIFICATE and not self._shows_certificate:  # Java's alert for a missing certificate
            kind = "CERTIFICATE_REQUIRED"
        if meaning := _MEANINGS.get(kind):
            if kind in _BAD_CERTIFICATE and self._tls.server_side:
                meaning += _OR_THE_NAME
            return AuthenticationFailed(meaning.format(other=self._other))
        if self.agreed:
            return ConnectionLost(f"TLS: {words}")
        return AuthenticationFailed(f"TLS handshake with {self._other} failed: {words}")

    def _not_trusted(self, error: ssl.SSLCertVerificationError) -> str:
        said = error.verify_message.rstrip(".")
        is_server = self._tls.server_side
        if error.verify_code in _OF_THE_CA:
            advice = _CA_OF_CLIENTS if is_server else _CA_OF_BROKERS
        elif error.verify_code == _PURPOSE:
            advice = _FOR_CLIENTS if is_server else _FOR_SERVERS
        else:
            advice = _ADVICE.get(error.verify_code, "it has to be replaced")
        if error.verify_code in _OF_THE_NAME:
            said = f"it is not for {self._expected!r}"
        return f"{self._other}'s certificate is not trusted: {said}; {advice}"


def _escaped(value: str) -> str:
    text = "".join("\\" + each if each in ',+"\\<>;' else each for each in value)
    return "\\" + text if text[:1] in (" ", "#") else text


_TYPES = {
    "commonName": "CN",
    "countryName": "C",
    "domainComponent": "DC",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "stateOrProvinceName": "ST",
    "streetAddress": "STREET",
    "userId": "UID",
}
"""RFC 2253's abbreviations for the parts of a name."""

_OF_THE_NAME = (62, 64)
"""OpenSSL's codes for a certificate of another host, and of another IP address."""

_OF_THE_CA = (2, 7, 18, 19, 20, 21, 27)
"""OpenSSL's codes for a certificate whose CA is missing, or is not trusted.

7 is a wrong signature. It comes if the CA was created again under its old name, and certificates do not say by which
key they are signed (`authorityKeyIdentifier`).
"""
_CA_OF_CLIENTS = "give the CA that signed it as ServerTLS(ca=…)"
_CA_OF_BROKERS = "give the CA that signed it as tls=TLS(ca=…)"

_PURPOSE = 26
"""OpenSSL's code for a certificate of a client that a server shows, or the other way round."""
_FOR_CLIENTS = "it has to be issued for clients (extendedKeyUsage clientAuth)"
_FOR_SERVERS = "it has to be issued for servers (extendedKeyUsage serverAuth)"

_TOO_WEAK = "it has to be issued again, by its CA as well, with keys of 2,048 bits (RSA) and SHA-256"
_ADVICE = {
    9: "it was issued for later, or the clock of this machine is wrong",
    # OpenSSL does not say which certificate of the chain has expired.
    10: "it has to be renewed, or the CA that signed it",
    66: _TOO_WEAK,
    67: _TOO_WEAK,
    68: _TOO_WEAK,
    62: "it has to name what brokers advertise; TLS(check_hostname=False) accepts any name",
    64: "it has to name what brokers advertise; TLS(check_hostname=False) accepts any name",
}
"""What to do, by OpenSSL's code (``X509_V_ERR_…``)."""

_BAD_CERTIFICATE = ("BAD_CERTIFICATE", "CERTIFICATE_UNKNOWN")
"""Alerts about a certificate that the peer rejects; Java also sends them if it is missing or has expired."""
_UNTRUSTED = (
    "{other} does not accept this side's certificate: it has expired or is not valid yet, or the CA that signed it is "
    "missing in {other}'s truststore"
)
_OR_THE_NAME = ", or it does not name the host to which the client connects"
_NO_SHARED_VERSION = "{other} shares no version of TLS with this side, which supports TLS 1.2 and newer"
_MEANINGS = {
    "CERTIFICATE_REQUIRED": "{other} requires a certificate, and got none: give TLS(certificate=…, key=…)",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "{other} sent no certificate, and one is required",
    "UNKNOWN_CA": _UNTRUSTED,
    "DECRYPT_ERROR": _UNTRUSTED,  # OpenSSL's alert for a wrong signature, see _OF_THE_CA
    **dict.fromkeys(_BAD_CERTIFICATE, _UNTRUSTED),
    "CERTIFICATE_EXPIRED": "{other} does not accept this side's certificate: it has expired and has to be renewed",
    "CERTIFICATE_REVOKED": "{other} does not accept this side's certificate: it was revoked and has to be replaced",
    "ACCESS_DENIED": "{other} denies access to this side's certificate",
    "HANDSHAKE_FAILURE": "{other} shares no cipher with this side, or requires a certificate: give TLS(certificate=…)",
    "UNSUPPORTED_CERTIFICATE": "{other} does not accept this side's certificate: it was issued for another purpose",
    "PROTOCOL_VERSION": _NO_SHARED_VERSION,
    "UNSUPPORTED_PROTOCOL": _NO_SHARED_VERSION,
    "VERSION_TOO_LOW": _NO_SHARED_VERSION,
    "INAPPROPRIATE_FALLBACK": "{other} fell back to an older version of TLS, although both sides support a newer one: "
    "the network lost the first attempt, or an attacker in the network forces the older version",
    "WRONG_VERSION_NUMBER": "{other} does not speak TLS: its listener is for plaintext, or is not Kafka; for "
    "plaintext, leave out tls=, or set security.protocol=PLAINTEXT or SASL_PLAINTEXT",
    "HTTP_REQUEST": "{other} speaks HTTP, not TLS",
    "NO_SHARED_CIPHER": "{other} shares no cipher with this side",
}
"""Messages, by OpenSSL's name of an error, or the alert of the other side."""


@naming_options
@dataclass(frozen=True, repr=False)
class TLS:
    """How a client secures its connections: ``ottla.connect("broker:9093", tls=TLS(ca="ca.pem"))``.

    Attributes:
        ca: the CAs that may have signed the brokers' certificates; by default the system's CAs.
        certificate: this client's own, with the intermediate ones up to its CA, if brokers require one (mTLS).
        key: its private key; by default it is in the same file.
        key_password: the password of the key, if it is encrypted.
        check_hostname: whether the brokers' certificates have to name the host that the client connects to.

    Raises:
        ConfigurationError: a file cannot be read, or has the wrong contents; says which, and why.
    """

    ca: Pem | None = None
    certificate: Pem | None = None
    key: Pem | None = None
    key_password: str | None = None
    check_hostname: bool = True
    _loaded: "_Loaded[TLS]" = field(init=False, compare=False)

    def __post_init__(self) -> None:
        if self.key is not None and self.certificate is None:
            raise ConfigurationError("tls: there is a key without a certificate: give certificate=… as well")
        if not isinstance(self.check_hostname, bool):
            raise ConfigurationError(f"tls: check_hostname must be True or False, not {self.check_hostname!r}")
        object.__setattr__(self, "_loaded", _Loaded(self, _client_context))

    def __repr__(self) -> str:
        return f"TLS({', '.join([*_given(self), f'check_hostname={self.check_hostname}'])})"

    def context(self) -> ssl.SSLContext:
        """The loaded files, in their current state; also for HTTP clients."""
        return self._loaded.context()

    def connection(self, host: str) -> TlsConnection:
        """The client's side of a new connection to a host."""
        return TlsConnection(self.context(), server_hostname=host, shows_certificate=self.certificate is not None)

    @property
    def stale(self) -> str:
        """Why the current files cannot be used, so that older contents are; empty if they can."""
        return self._loaded.stale


ClientCertificates = Literal["none", "requested", "required"]


@naming_options
@dataclass(frozen=True, kw_only=True, repr=False)
class ServerTLS:
    """How a listener secures its connections.

    Attributes:
        certificate: the server's own, with the intermediate ones up to its CA.
        key: its private key; by default it is in the same file.
        key_password: the password of the key, if it is encrypted.
        ca: the CAs that may have signed clients' certificates.
        client_certificates: Kafka's `ssl.client.auth`: whether clients may or must have a certificate; needs ``ca``.

    Raises:
        ConfigurationError: a file cannot be read, or has the wrong contents; says which, and why.
    """

    certificate: Pem
    key: Pem | None = None
    key_password: str | None = None
    ca: Pem | None = None
    client_certificates: ClientCertificates = "none"
    _loaded: "_Loaded[ServerTLS]" = field(init=False, compare=False)

    def __post_init__(self) -> None:
        if self.client_certificates not in ("none", "requested", "required"):
            raise ConfigurationError(
                f"tls: client_certificates must be none, requested or required, not {self.client_certificates!r}"
            )
        if self.client_certificates != "none" and self.ca is None:
            raise ConfigurationError("tls: give the CA that signs the clients' certificates as ca=…")
        if self.client_certificates == "none" and self.ca is not None:
            raise ConfigurationError("tls: there is a ca, but client certificates are off: set client_certificates=…")
        object.__setattr__(self, "_loaded", _Loaded(self, _server_context))

    def __repr__(self) -> str:
        return f"ServerTLS({', '.join([*_given(self), f'client_certificates={self.client_certificates}'])})"

    @property
    def exposed(self) -> str | None:
        """The file with the private key, if every user of the machine may read it; not on Windows."""
        key = self.certificate if self.key is None else self.key
        if self.key_password is not None or is_text(key):
            return None
        return os.fspath(key) if is_exposed(key) else None

    def connection(self) -> TlsConnection:
        """The server's side of a connection that was just accepted."""
        return TlsConnection(self._loaded.context(), server_side=True)

    @property
    def stale(self) -> str:
        """Like `TLS.stale`."""
        return self._loaded.stale


class _Options(Protocol):
    """The options of both sides."""

    @property
    def ca(self) -> Pem | None: ...
    @property
    def certificate(self) -> Pem | None: ...
    @property
    def key(self) -> Pem | None: ...
    @property
    def key_password(self) -> str | None: ...


def _given(options: _Options) -> list[str]:
    """The options for a repr, without the text of a key."""
    pems = ("ca", options.ca), ("certificate", options.certificate), ("key", options.key)
    return [f"{name}={named(name, pem)}" for name, pem in pems if pem is not None]


Side = TypeVar("Side", bound=_Options)


class _Loaded(Generic[Side]):
    """Keeps the latest usable result of ``load`` for the files of ``options``."""

    def __init__(self, options: Side, load: Callable[[Side], ssl.SSLContext]) -> None:
        self._options, self._load = options, load
        self._files = [
            os.fspath(each) for each in (options.ca, options.certificate, options.key) if each and not is_text(each)
        ]
        self.stale = ""
        self._seen = self._stamps()
        self._context = load(options)

    def context(self) -> ssl.SSLContext:
        if (stamps := self._stamps()) != self._seen:
            try:
                self._context, self._seen, self.stale = self._load(self._options), stamps, ""
            except ConfigurationError as error:  # perhaps they are being written: the next connection tries again
                self.stale = str(error)
        return self._context

    def _stamps(self) -> list[tuple[int, int, int] | None]:
        return [stamp(each) for each in self._files]


def _client_context(options: TLS) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.check_hostname = options.check_hostname
    if options.ca is None:
        context.load_default_certs()
    else:
        _load_ca(context, options.ca)
    if options.certificate is not None:
        _load_own(context, options, options.certificate)
    return context


def _server_context(options: ServerTLS) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    if options.ca is not None:
        _load_ca(context, options.ca)
        required = options.client_certificates == "required"
        context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
        # A resumed session would not check the certificate again, also if it has expired meanwhile.
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
    _load_own(context, options, options.certificate)
    return context


def _load_ca(context: ssl.SSLContext, ca: Pem) -> None:
    try:
        context.load_verify_locations(cadata=text("ca", ca))
    except (ssl.SSLError, ValueError):
        raise ConfigurationError(f"tls: {named('ca', ca)} has no certificates in PEM") from None


def _load_own(context: ssl.SSLContext, options: _Options, certificate: Pem) -> None:
    """Load the certificate and its key; OpenSSL reads both from files only."""
    key_option, key = ("certificate", certificate) if options.key is None else ("key", options.key)
    own, its_key = named("certificate", certificate), named(key_option, key)
    is_encrypted = "ENCRYPTED" in text(key_option, key)
    with ExitStack() as stack:
        chain = file(stack, "certificate", certificate)
        try:
            # Without a password function OpenSSL would ask at the terminal, and hang a service.
            context.load_cert_chain(chain, file(stack, "key", key), lambda: options.key_password or "")
        except ssl.SSLError as error:
            if is_encrypted:
                what = "does not open with this key_password" if options.key_password else "needs a key_password"
                why = f"{its_key} is encrypted, and {what}"
            elif "KEY_VALUES_MISMATCH" in str(error) and options.key is None:
                why = f"{own} has a key that does not belong to its first certificate"
            elif "KEY_VALUES_MISMATCH" in str(error):
                why = f"{its_key} does not belong to {own}"
            elif options.key is None:
                advice = "give the key as key=… if it is separate"
                if isinstance(options, ServerTLS):
                    advice = "give the key as ServerTLS(key=…) if it is separate"
                why = f"{own} must have a certificate and its key, in PEM: {advice}"
            else:
                why = f"{own} must have a certificate, and {its_key} its key, in PEM"
            raise ConfigurationError(f"tls: {why}") from None
        except OSError as error:  # it could be read a moment ago
            raise ConfigurationError(f"tls: {own} or {its_key} cannot be read: {error.strerror}") from None
