"""Kafka's names for TLS and SASL, of Java, librdkafka and confluent-kafka: turns them into `tls=` and `sasl=`.

Rules:
- `security.protocol` decides; names that it makes ineffective are left out, as in Kafka's own clients.
- Stores are PEM, as a file or as text. JKS and PKCS#12 are refused; the error says how to convert them.
- `sasl.jaas.config` may name the login modules of PLAIN, SCRAM and OAUTHBEARER.
- OAUTHBEARER means OIDC's client credentials; a function that returns tokens is passed as ``sasl=OAuthBearer(…)``.
- No message shows a value that may be a secret.
- TLS and SASL are imported only if they are configured: every Python worker of Spark reads options.

Source: SslConfigs.java, SaslConfigs.java, JaasConfig.java; librdkafka's CONFIGURATION.md.
"""

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any

from ottla.errors import ConfigurationError
from ottla.late_dataclass import dataclass

if TYPE_CHECKING:
    from ottla.sasl import Mechanism

PROTOCOL = "security.protocol"
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

PASSWORDS = {"PLAIN": "Plain", "SCRAM-SHA-256": "ScramSha256", "SCRAM-SHA-512": "ScramSha512"}
"""Mechanisms that need a password, and their classes in `ottla.sasl`."""
OAUTHBEARER = "OAUTHBEARER"
MECHANISMS = (*PASSWORDS, OAUTHBEARER)
_MECHANISM = re.compile("[A-Z][A-Z0-9-]{0,19}")
"""Anything else may be a password in the wrong place."""

TLS_NAMES = {
    "ssl.ca.location": "ca",
    "ssl.ca.pem": "ca",
    "ssl.truststore.location": "ca",
    "ssl.truststore.certificates": "ca",
    "ssl.certificate.location": "certificate",
    "ssl.certificate.pem": "certificate",
    "ssl.keystore.location": "certificate",
    "ssl.keystore.certificate.chain": "certificate",
    "ssl.key.location": "key",
    "ssl.key.pem": "key",
    "ssl.keystore.key": "key",
    "ssl.key.password": "key_password",
    "ssl.endpoint.identification.algorithm": "check_hostname",
}
"""Names for TLS, and the argument of `ottla.TLS` for each."""

_TEXTS = {each for each in TLS_NAMES if each.endswith((".pem", ".certificates", ".chain", "keystore.key"))}
"""Names whose values are PEM text, and not the name of a file."""

SASL_NAMES = ("sasl.mechanism", "sasl.mechanisms", "sasl.username", "sasl.password", "sasl.jaas.config")

_URLENCODE = "sasl.oauthbearer.header.urlencode"
OAUTH_NAMES = {
    "sasl.oauthbearer.token.endpoint.url": "endpoint",
    "sasl.oauthbearer.client.id": "client_id",
    "sasl.oauthbearer.client.credentials.client.id": "client_id",
    "sasl.oauthbearer.client.secret": "client_secret",
    "sasl.oauthbearer.client.credentials.client.secret": "client_secret",
    "sasl.oauthbearer.scope": "scope",
    _URLENCODE: "urlencode_header",
    "https.ca.location": "ca",
    "https.ca.pem": "ca",
}
"""Names for OIDC, and the argument of `ottla.ClientCredentials`, or of its `ottla.TLS`, for each."""
_OAUTH_ENTRIES = {"clientId": "client_id", "clientSecret": "client_secret", "scope": "scope"}
"""Entries of a login module, and the same arguments."""
_OAUTH_METHODS = ("oidc", "default")
_HANDLERS = "org.apache.kafka.common.security.oauthbearer"

_BY_HAND = "use sasl=OAuthBearer(function) of connect"
_CONVERT = "ottla reads stores in PEM only: convert it with keytool and openssl (docs/security.md)"
_ALWAYS = "the certificate chain is always verified"
_CHECKED = {
    "ssl.truststore.type": ("PEM", _CONVERT),
    "ssl.keystore.type": ("PEM", _CONVERT),
    "enable.ssl.certificate.verification": ("true", _ALWAYS),
}
"""Names that can have one value only, and why."""
_REFUSED = {
    "ssl.truststore.password": _CONVERT,
    "ssl.keystore.password": _CONVERT,
}
TUNING = {
    "sasl.kerberos.kinit.cmd",
    "sasl.kerberos.min.time.before.relogin",
    "sasl.kerberos.service.name",
    "sasl.kerberos.ticket.renew.jitter",
    "sasl.kerberos.ticket.renew.window.factor",
    "sasl.login.connect.timeout.ms",
    "sasl.login.read.timeout.ms",
    "sasl.login.refresh.buffer.seconds",
    "sasl.login.refresh.min.period.seconds",
    "sasl.login.refresh.window.factor",
    "sasl.login.refresh.window.jitter",
    "sasl.login.retry.backoff.max.ms",
    "sasl.login.retry.backoff.ms",
    "sasl.oauthbearer.clock.skew.seconds",
    "sasl.oauthbearer.expected.audience",
    "sasl.oauthbearer.expected.issuer",
    "sasl.oauthbearer.jwks.endpoint.refresh.ms",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
    "sasl.oauthbearer.jwks.endpoint.url",
    "sasl.oauthbearer.scope.claim.name",
    "sasl.oauthbearer.sub.claim.name",
    "ssl.cipher.suites",
    "ssl.curves.list",
    "ssl.enabled.protocols",
    "ssl.keymanager.algorithm",
    "ssl.protocol",
    "ssl.provider",
    "ssl.secure.random.implementation",
    "ssl.sigalgs.list",
    "ssl.trustmanager.algorithm",
}
"""Names that Python and OpenSSL decide here, or that only brokers use: leaving them out changes no record."""
_METHOD, _HANDLER, _EXTENSIONS = (
    "sasl.oauthbearer.method",
    "sasl.login.callback.handler.class",
    "sasl.oauthbearer.extensions",
)
SECURITY_NAMES = frozenset(
    {PROTOCOL, *TLS_NAMES, *SASL_NAMES, *OAUTH_NAMES, *_CHECKED, *_REFUSED, *TUNING, _METHOD, _HANDLER, _EXTENSIONS}
)
"""All known names for TLS and SASL."""
_SIMILAR = {"sasl.client.callback.handler.class", "ssl.crl.location", "ssl.providers"}
"""Names of Kafka's clients that have no meaning here, and look like misspelt ones that have."""
_LOGIN_MODULES = {
    "PlainLoginModule": ("PLAIN",),
    "ScramLoginModule": ("SCRAM-SHA-256", "SCRAM-SHA-512"),
    "OAuthBearerLoginModule": (OAUTHBEARER,),
}
_TOKEN = "tokenauth"
_PASSWORD_ENTRIES = {"username", "password", _TOKEN}
_EXTENSION = "extension_"


@dataclass(frozen=True, slots=True)
class Wrong:
    """An error, in Kafka's names."""

    what: str
    in_python: str = ""
    """The equivalents for a Python program."""

    def __str__(self) -> str:
        return f"{self.what}: {self.in_python}" if self.in_python else self.what


@dataclass(slots=True)
class Security:
    """The result of reading the names."""

    arguments: dict[str, Any] = field(default_factory=dict)
    """Arguments of `ottla.connect`."""
    left_out: dict[str, str] = field(default_factory=dict)
    """Names that other names make ineffective, or that `lenient` leaves out, each with the reason."""
    wrong: list[Wrong] = field(default_factory=list)

    def leave_out(self, names: Iterable[str], why: str) -> None:
        """Note names that are left out."""
        self.left_out |= dict.fromkeys(names, why)

    def refuse(self, what: str, in_python: str = "") -> None:
        """Add an error."""
        self.wrong.append(Wrong(what, in_python))


def is_security(name: str) -> bool:
    """Whether this module reads the name."""
    return name == PROTOCOL or name.startswith(("ssl.", "sasl.", "https.", "enable.ssl.", "enable.sasl."))


def read_security(config: Mapping[str, Any], *, lenient: bool = False) -> Security:
    """Turn ``config``, which has only names for TLS and SASL, into arguments."""
    made = Security()
    protocol = str(config.get(PROTOCOL, "PLAINTEXT")).strip().upper()
    if protocol not in PROTOCOLS:
        made.refuse(f"'security.protocol': {protocol!r} is not one of {', '.join(PROTOCOLS)}")
        return made
    for wanted, names, read in (
        ("SSL" in protocol, ("ssl.", "enable.ssl."), _read_tls),
        ("SASL" in protocol, ("sasl.", "enable.sasl.", "https."), _read_sasl),
    ):
        given = {name: value for name, value in config.items() if name.startswith(names)}
        if wanted:
            read(made, given, lenient)
        else:
            made.leave_out(given, f"security.protocol is {protocol}")
    return made


def _read_tls(made: Security, given: Mapping[str, Any], lenient: bool) -> None:
    options: dict[str, Any] = {}
    for name, value in given.items():
        if name in TLS_NAMES:
            option = TLS_NAMES[name]
            if option in options:
                names = " and ".join(repr(each) for each in given if TLS_NAMES.get(each) == option)
                made.refuse(f"{names} have the same meaning here: give one of them")
            if name in _TEXTS and "-----BEGIN" not in str(value):  # it would be taken for a file name, and shown
                made.refuse(f"{name!r} is not PEM: it contains no -----BEGIN …")
            elif option == "check_hostname":
                options[option] = _checks_hostname(value)
            else:
                options[option] = _in_lines(str(value)) if name in _TEXTS else str(value)
        elif name in _CHECKED:
            only, why = _CHECKED[name]
            if str(value).strip().lower() != only.lower():
                made.refuse(f"{name!r} can only be {only} here, not {value!r}: {why}")
        elif name in _REFUSED:
            made.refuse(f"{name!r} has no meaning here: {_REFUSED[name]}")
        else:
            _not_understood(made, name, lenient)
    if not made.wrong:
        from ottla.tls import TLS

        try:
            made.arguments["tls"] = TLS(**options)
        except ConfigurationError as error:
            names = " and ".join(repr(each) for each in given if each in TLS_NAMES)
            made.refuse(f"{names}: {error}")


_UNBROKEN = re.compile(r"(-----BEGIN [^-]+-----)([ \t\fA-Za-z0-9+/=]*)(-----END [^-]+-----)")


def _in_lines(pem: str) -> str:
    """PEM with the lines that OpenSSL needs: a value continued over lines of a properties file has no line breaks."""
    return _UNBROKEN.sub(
        lambda found: "\n".join((found[1], *re.findall(".{1,64}", "".join(found[2].split())), found[3], "")), pem
    )


def _checks_hostname(value: Any) -> bool:
    return str(value or "").strip().lower() not in ("", "none")


def _read_sasl(made: Security, given: Mapping[str, Any], lenient: bool) -> None:
    login = dict(given)
    names = [each for each in ("sasl.mechanism", "sasl.mechanisms") if each in login]
    mechanism = str(login.pop("sasl.mechanisms", login.pop("sasl.mechanism", "GSSAPI"))).strip()
    if len(names) == 2 and len({str(given[each]) for each in names}) == 2:
        made.refuse("'sasl.mechanism' and 'sasl.mechanisms' have the same meaning here, so they cannot differ")
    login.pop("sasl.mechanism", None)
    jaas: dict[str, str] = {}
    if (text := login.pop("sasl.jaas.config", None)) is not None:
        try:
            jaas = _read_jaas(str(text), mechanism)
        except ConfigurationError as error:
            made.refuse(f"'sasl.jaas.config': {error}")
        bearer = mechanism == OAUTHBEARER
        for entry in jaas:
            if entry not in (_OAUTH_ENTRIES if bearer else _PASSWORD_ENTRIES) and not (
                bearer and entry.startswith(_EXTENSION)
            ):
                _not_understood(made, f"{entry} in sasl.jaas.config", lenient)
    if mechanism == OAUTHBEARER:
        make = _read_oauth(made, login, jaas)
    elif mechanism in PASSWORDS:
        make = _read_password(made, login, jaas, text is not None, mechanism)
    else:
        default = "" if names else " by default"
        what = f"is {mechanism}{default}" if _MECHANISM.fullmatch(mechanism) else "is not a mechanism"
        made.refuse(f"'sasl.mechanism' {what}: ottla has {', '.join(MECHANISMS)}")
        return
    for name in login:
        _not_understood(made, name, lenient)
    if not made.wrong:
        try:
            made.arguments["sasl"] = make()
        except ConfigurationError as error:
            unknown = [repr(name) for name in login if name not in SECURITY_NAMES]  # one of them may be the missing one
            made.refuse(
                str(error) + (f" (ignored, because ottla does not know it: {', '.join(unknown)})" if unknown else "")
            )


def _read_password(
    made: Security, login: dict[str, Any], jaas: Mapping[str, str], has_jaas: bool, mechanism: str
) -> "Callable[[], Mechanism]":
    """Take user and password out of ``login``."""
    user, password = login.pop("sasl.username", None), login.pop("sasl.password", None)
    if has_jaas:
        if user is not None or password is not None:
            made.refuse("'sasl.jaas.config' and 'sasl.username' have the same meaning here: give one of them")
        user, password = jaas.get("username"), jaas.get("password")

    def make() -> "Mechanism":
        from ottla import sasl

        try:
            found: Mechanism = getattr(sasl, PASSWORDS[mechanism])(user, password)
            return found
        except ConfigurationError as error:
            raise ConfigurationError(f"'sasl.username' and 'sasl.password', or 'sasl.jaas.config': {error}") from None

    return make


def _read_oauth(made: Security, login: dict[str, Any], jaas: Mapping[str, str]) -> "Callable[[], Mechanism]":
    """Take the arguments of OIDC's client credentials out of ``login``."""
    method = str(login.pop(_METHOD, "oidc")).strip().lower()
    handler = str(login.pop(_HANDLER, "")).strip()
    if method not in _OAUTH_METHODS or handler.rpartition(".")[2] not in ("", "OAuthBearerLoginCallbackHandler"):
        made.refuse(
            f"{_METHOD!r} and {_HANDLER!r} can only be oidc and {_HANDLERS}.OAuthBearerLoginCallbackHandler here",
            _BY_HAND,
        )
    options = {argument: jaas[entry] for entry, argument in _OAUTH_ENTRIES.items() if entry in jaas}
    extensions = {name.removeprefix(_EXTENSION): value for name, value in jaas.items() if name.startswith(_EXTENSION)}
    for name in [each for each in login if each in OAUTH_NAMES]:
        option = OAUTH_NAMES[name]
        if option in options:
            made.refuse(f"{name!r} and a synonym, or 'sasl.jaas.config', have the same meaning: give one of them")
        options[option] = str(login.pop(name))
    encode = options.pop("urlencode_header", "false").strip().lower()
    if encode not in ("true", "false"):
        made.refuse(f"{_URLENCODE!r} must be true or false, not {encode!r}")
    for pair in str(login.pop(_EXTENSIONS, "")).split(","):
        if pair.strip():
            name, _, value = pair.partition("=")
            extensions[name.strip()] = value.strip()

    missing = [each for each in ("endpoint", "client_id", "client_secret") if each not in options]
    if missing and not made.wrong:
        names = [next(name for name, each in OAUTH_NAMES.items() if each == option) for option in missing]
        made.refuse(f"OAUTHBEARER needs {', '.join(map(repr, names))}", f"or {_BY_HAND}")

    def make() -> "Mechanism":
        from ottla.oidc import ClientCredentials
        from ottla.sasl import OAuthBearer
        from ottla.tls import TLS

        ca = options.pop("ca", None)
        credentials: Any = options
        fetch = ClientCredentials(**credentials, tls=TLS(ca=ca) if ca else None, urlencode_header=encode == "true")
        return OAuthBearer(fetch, extensions)

    return make


_ENTRY = re.compile(r"""(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"']+))""")


def _read_jaas(text: str, mechanism: str) -> dict[str, str]:
    """Read the entries of a login module, such as ``….PlainLoginModule required username="a" password="b";``."""
    found = re.fullmatch(r"\s*([\w.$]+)\s+\w+((?:\s+" + _ENTRY.pattern + r")*)\s*;\s*", text)
    if found is None:
        raise ConfigurationError('it must look like \'….PlainLoginModule required username="a" password="b";\'')
    module = found[1].rpartition(".")[2]
    if mechanism not in _LOGIN_MODULES.get(module, ()):
        raise ConfigurationError(f"the login module is {module}, which is not for sasl.mechanism={mechanism}")
    entries = {
        each[1]: re.sub(r"\\(.)", r"\1", each[2] or each[3] or each[4] or "") for each in _ENTRY.finditer(found[2])
    }
    if entries.get(_TOKEN, "false").lower() != "false":
        raise ConfigurationError(f"{_TOKEN} needs delegation tokens, which ottla does not have yet: give a SCRAM user")
    return entries


def _not_understood(made: Security, name: str, lenient: bool) -> None:
    known = name in SECURITY_NAMES or name in _SIMILAR
    near = () if known else difflib.get_close_matches(name, sorted(SECURITY_NAMES), 1, 0.9)
    if (
        near
    ):  # also if `lenient`: without the name that is meant, the client would connect in another way, or not at all
        made.refuse(f"{name!r} is not a name that Kafka's clients know: did you mean {near[0]!r}?")
    elif lenient:
        made.leave_out([name], "Python and OpenSSL decide this, or ottla does not have it yet")
    else:
        made.refuse(f"{name!r} has no meaning here", "use tls= or sasl= of connect (lenient=True leaves it out)")
