"""Kafka's names for TLS and SASL, understood: Java's, librdkafka's and confluent-kafka's, as `tls=` and `sasl=`.

Rules:
- `security.protocol` decides; names that it makes idle are left out, as in Kafka's own clients.
- Stores are PEM, as a file or as text. JKS and PKCS#12 are refused, with how to convert them.
- Of `sasl.jaas.config` the login modules of PLAIN and SCRAM are understood.
- No message shows a value that may be a secret.

Source: SslConfigs.java, SaslConfigs.java, JaasConfig.java; librdkafka's CONFIGURATION.md.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ottla.errors import ConfigurationError
from ottla.sasl import Mechanism, Plain, ScramSha256, ScramSha512
from ottla.tls import TLS

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

MECHANISMS: dict[str, type[Plain] | type[ScramSha256]] = {
    each.mechanism: each for each in (Plain, ScramSha256, ScramSha512)
}

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
"""And the argument of `ottla.TLS` that each is."""

SASL_NAMES = ("sasl.mechanism", "sasl.mechanisms", "sasl.username", "sasl.password", "sasl.jaas.config")

_CONVERT = "stores are PEM here: convert it with keytool and openssl (docs/security.md)"
_ALWAYS = "the chain of certificates is always verified"
_CHECKED = {
    "ssl.truststore.type": ("PEM", _CONVERT),
    "ssl.keystore.type": ("PEM", _CONVERT),
    "enable.ssl.certificate.verification": ("true", _ALWAYS),
}
"""What can have one value only, and why."""
_REFUSED = {
    "ssl.truststore.password": _CONVERT,
    "ssl.keystore.password": _CONVERT,
}
_LOGIN_MODULES = {"PlainLoginModule": ("PLAIN",), "ScramLoginModule": ("SCRAM-SHA-256", "SCRAM-SHA-512")}


@dataclass(slots=True)
class Security:
    """What was made of the names."""

    arguments: dict[str, Any] = field(default_factory=dict)
    """Of `ottla.connect`."""
    left_out: dict[str, str] = field(default_factory=dict)
    """Names that others make idle, or that `lenient` leaves out, each with the reason."""
    wrong: list[str] = field(default_factory=list)


def is_security(name: str) -> bool:
    """It is one of those that are read here."""
    return name == "security.protocol" or name.startswith(("ssl.", "sasl.", "https.", "enable.ssl.", "enable.sasl."))


def read_security(config: Mapping[str, Any], *, lenient: bool = False) -> Security:
    """The arguments that ``config``, names for TLS and SASL alone, stands for."""
    made = Security()
    protocol = str(config.get("security.protocol", "PLAINTEXT")).strip().upper()
    if protocol not in PROTOCOLS:
        made.wrong.append(f"'security.protocol': {protocol!r} is not one of {', '.join(PROTOCOLS)}")
        return made
    for wanted, names, read in (
        ("SSL" in protocol, ("ssl.", "https.", "enable.ssl."), _read_tls),
        ("SASL" in protocol, ("sasl.", "enable.sasl."), _read_sasl),
    ):
        given = {name: value for name, value in config.items() if name.startswith(names)}
        if wanted:
            read(made, given, lenient)
        else:
            made.left_out |= dict.fromkeys(given, f"security.protocol is {protocol}")
    return made


def _read_tls(made: Security, given: Mapping[str, Any], lenient: bool) -> None:
    options: dict[str, Any] = {}
    for name, value in given.items():
        if name in TLS_NAMES:
            option = TLS_NAMES[name]
            if option in options:
                names = " and ".join(repr(each) for each in given if TLS_NAMES.get(each) == option)
                made.wrong.append(f"{names} are one thing here: give one of them")
            options[option] = _checks_hostname(value) if option == "check_hostname" else str(value)
        elif name in _CHECKED:
            only, why = _CHECKED[name]
            if str(value).strip().lower() != only.lower():
                made.wrong.append(f"{name!r} can only be {only} here, not {value!r}: {why}")
        elif name in _REFUSED:
            made.wrong.append(f"{name!r} has no meaning here: {_REFUSED[name]}")
        else:
            _not_understood(made, name, lenient)
    if not made.wrong:
        try:
            made.arguments["tls"] = TLS(**options)
        except ConfigurationError as error:
            names = " and ".join(repr(each) for each in given if each in TLS_NAMES)
            made.wrong.append(f"{names}: {error}")


def _checks_hostname(value: Any) -> bool:
    return str(value or "").strip().lower() not in ("", "none")


def _read_sasl(made: Security, given: Mapping[str, Any], lenient: bool) -> None:
    login = dict(given)
    names = [each for each in ("sasl.mechanism", "sasl.mechanisms") if each in login]
    mechanism = str(login.pop("sasl.mechanisms", login.pop("sasl.mechanism", "GSSAPI"))).strip()
    if len(names) == 2 and len({str(given[each]) for each in names}) == 2:
        made.wrong.append("'sasl.mechanism' and 'sasl.mechanisms' are one thing here, and cannot differ")
    login.pop("sasl.mechanism", None)
    user, password = login.pop("sasl.username", None), login.pop("sasl.password", None)
    if (jaas := login.pop("sasl.jaas.config", None)) is not None:
        if user is not None or password is not None:
            made.wrong.append("'sasl.jaas.config' and 'sasl.username' are one thing here: give one of them")
        try:
            user, password = _read_jaas(str(jaas), mechanism)
        except ConfigurationError as error:
            made.wrong.append(f"'sasl.jaas.config': {error}")
    for name in login:
        _not_understood(made, name, lenient)
    if mechanism not in MECHANISMS:
        default = "" if names else ", as it is by default"
        made.wrong.append(f"'sasl.mechanism' is {mechanism}{default}: here it can be {', '.join(MECHANISMS)}")
    if not made.wrong:
        try:
            made.arguments["sasl"] = _login(mechanism, user, password)
        except ConfigurationError as error:
            made.wrong.append(f"'sasl.username' and 'sasl.password', or 'sasl.jaas.config': {error}")


def _login(mechanism: str, user: Any, password: Any) -> Mechanism:
    return MECHANISMS[mechanism](user, password)


_ENTRY = re.compile(r"""(\w+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"']+))""")


def _read_jaas(text: str, mechanism: str) -> tuple[str | None, str | None]:
    """User and password of a login module, such as ``….PlainLoginModule required username="a" password="b";``."""
    found = re.fullmatch(r"\s*([\w.$]+)\s+\w+((?:\s+" + _ENTRY.pattern + r")*)\s*;\s*", text)
    if found is None:
        raise ConfigurationError('it is not as in \'….PlainLoginModule required username="a" password="b";\'')
    module = found[1].rpartition(".")[2]
    if mechanism not in _LOGIN_MODULES.get(module, ()):
        raise ConfigurationError(f"the login module is {module}, which is not for sasl.mechanism={mechanism}")
    entries = {
        each[1]: re.sub(r"\\(.)", r"\1", each[2] or each[3] or each[4] or "") for each in _ENTRY.finditer(found[2])
    }
    return entries.get("username"), entries.get("password")


def _not_understood(made: Security, name: str, lenient: bool) -> None:
    if lenient:
        made.left_out[name] = "it tunes what Python and OpenSSL decide, or is not there yet"
    else:
        made.wrong.append(f"{name!r} has no meaning here: say tls= or sasl= to connect (lenient=True leaves it out)")
