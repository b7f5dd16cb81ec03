"""Reads the listeners of a configuration file, and their TLS and SASL, by Kafka's names.

Rules:
- ``listener.name.<name>.<setting>`` goes before ``<setting>``, and ``listener.name.<name>.<mechanism>.<setting>``
  before both.
- `ssl.client.auth` without the name of a listener has no effect on SASL_SSL, as in Apache Kafka.
- Certificates and keys are PEM. Passwords of users are not in the file: `sasl.jaas.config` is refused.
- Settings of TLS and SASL that no listener uses are refused: the file expects more security than it gets. `_Settings`
  notes each name that it looks up, under which a value would have counted; a given name that no listener looked up is
  refused, whatever the reason.
- The controller's listener is left out: these servers have no controller that others connect to.

Source: AbstractKafkaConfig.java, SocketServerConfigs.java, SslConfigs.java, SaslConfigs.java; KIP-103, KIP-651.
"""

import re
from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any, NamedTuple

from ottla.config_file import ConfigFile
from ottla.errors import ConfigurationError
from ottla.listeners import ListenerConfig, SecurityProtocol

LISTENERS = ("listeners", "advertised.listeners", "controller.listener.names", "listener.security.protocol.map")
_LISTENER = re.compile(r"([A-Za-z0-9_]+)://(.*):([0-9]+)")
_PREFIX = "listener.name."
_OF_TLS = (
    "ssl.keystore.location",
    "ssl.keystore.type",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.key.password",
    "ssl.truststore.location",
    "ssl.truststore.type",
    "ssl.truststore.certificates",
    "ssl.client.auth",
    "ssl.principal.mapping.rules",
)
_OF_SASL = (
    "sasl.enabled.mechanisms",
    "sasl.oauthbearer.jwks.endpoint.url",
    "sasl.oauthbearer.jwks.endpoint.refresh.ms",
    "sasl.oauthbearer.expected.audience",
    "sasl.oauthbearer.expected.issuer",
    "sasl.oauthbearer.clock.skew.seconds",
    "sasl.oauthbearer.sub.claim.name",
    "sasl.server.max.receive.size",
)
_OF_LOGINS = ("connections.max.reauth.ms", "connection.failed.authentication.delay.ms")
"""Settings of SASL that a file without SASL may have, too, but not for one of its listeners."""
_ADVICE = {
    "ssl.keystore.password": "PEM files have no password of their own: leave it out; ssl.key.password is the key's",
    "ssl.truststore.password": "PEM files have no password: leave it out",
}
_JAAS = "passwords do not belong into this file, and there are no login modules: leave it out, and add users with {}"
_WHY_UNUSED = {
    "ssl.client.auth": "it is for SSL; for SASL_SSL write it as listener.name.<the listener's name>.ssl.client.auth",
    "ssl.truststore.": "it needs ssl.client.auth=required or requested for the same listener",
    "ssl.principal.mapping.rules": "it needs an SSL listener with ssl.client.auth=required or requested",
    "sasl.oauthbearer.": "it needs a listener with OAUTHBEARER in sasl.enabled.mechanisms, and none has its name",
    "connections.max.reauth.ms": "it needs a listener with this mechanism in sasl.enabled.mechanisms",
}
"""The beginning of a setting, without the listener and the mechanism -> why no listener may use it."""
_SECURITY = ("ssl.", "sasl.", "delegation.token.", "principal.builder.", _PREFIX)


class ServerSettings(NamedTuple):
    """What differs between the servers that have listeners.

    Attributes:
        server: ``"broker"`` or ``"proxy"``.
        add_user: the command that adds a user.
        unused: settings with such names that the server accepts and ignores.
        own: further settings that a listener of this server may have.
    """

    server: str
    add_user: str
    unused: Container[str] = ()
    own: tuple[str, ...] = ()

    def is_security(self, name: str) -> bool:
        """Whether a setting is about TLS or SASL, and is read here."""
        return (name.startswith(_SECURITY) and name not in self.unused) or name in (*_OF_LOGINS, *self.own)


class Elsewhere(NamedTuple):
    """Another server authenticates the clients of a listener.

    Attributes:
        reads_tokens: this one reads their names in tokens that the other has accepted.
    """

    reads_tokens: bool = False


def read_listeners(
    file: ConfigFile,
    kafkas: Mapping[str, Any],
    of: ServerSettings,
    elsewhere: Callable[[str], Elsewhere | None] = lambda name: None,
) -> dict[str, Any]:
    """The fields of a server's configuration about listeners: ``listen`` and ``advertise``, or ``listeners``.

    Args:
        elsewhere: says of the listener with this name whether another server authenticates its clients.

    Raises:
        ConfigurationError: a setting cannot be used.
    """
    given = {name: value for name, value in kafkas.items() if of.is_security(name)}
    advices = {"sasl.jaas.config": _JAAS.format(of.add_user), **_ADVICE}
    for name in given:
        if (advice := advices.get(_bare(name))) is not None:
            raise file.error(f"{name}: {advice}")
        if _bare(name) not in (*_OF_TLS, *_OF_SASL, *_OF_LOGINS, *of.own):
            raise file.error(f"{name}: this {of.server} has no such setting; leave it out")
        if not as_text(given[name]).strip(" ,"):  # perhaps a variable of a script that is not set
            raise file.error(f"{name} is empty: give its value, or leave it out")
    addresses = _addresses(file, kafkas)
    _check_names_of_listeners(file, given, [*addresses, *_controllers(kafkas)])
    logs_in = any(protocol.has_sasl for _, protocol, *_ in addresses.values()) or any(
        _bare(each) in _OF_SASL for each in given
    )
    with_tls = "SASL_SSL" if logs_in else "SSL"
    for names, has, example in ((_OF_TLS, "has_tls", with_tls), (_OF_SASL, "has_sasl", "SASL_SSL")):
        has_one = any(getattr(protocol, has) for _, protocol, *_ in addresses.values())
        if not has_one and (unused := [each for each in given if _bare(each) in names]):
            raise file.error(f"{unused[0]} is given, but no listener is {example}: write listeners={example}://:9093")
    plain = [each for each in addresses.values() if each[1] is SecurityProtocol.PLAINTEXT]
    used = {*_OF_LOGINS, *of.own, *(_prefix(name) + each for name in addresses for each in of.own)}
    if len(addresses) == len(plain) <= 1:
        _check_use(file, given, used, _controllers(kafkas))
        return {
            field: value
            for _, _, listen, advertise in plain
            for field, value in (("listen", listen), ("advertise", advertise))
            if value is not None
        }
    listeners = tuple(
        _listener(file, _Settings(file, given, each[0], used), *each, elsewhere(each[0])) for each in addresses.values()
    )
    _check_use(file, given, used, _controllers(kafkas))
    return {"listeners": listeners}


def _check_names_of_listeners(file: ConfigFile, given: Mapping[str, Any], listeners: Iterable[str]) -> None:
    """Refuse a setting for a listener that does not exist: it would secure nothing."""
    names = {name.strip().lower() for name in listeners}
    for setting in given:
        if setting.startswith(_PREFIX):
            named = setting.removeprefix(_PREFIX).partition(".")[0]
            if named not in names:
                raise file.error(f"{setting}: listeners has no {named}; write its name in small letters")


def _check_use(file: ConfigFile, given: Mapping[str, Any], used: Container[str], controllers: Iterable[str]) -> None:
    """Refuse a setting that no listener has looked up: it would secure nothing."""
    elsewhere = tuple(_prefix(name.strip()) for name in controllers if name.strip())
    for name in sorted(given, key=lambda each: _bare(each) != "ssl.client.auth"):  # the others often depend on it
        harmless = _bare(name) == "ssl.client.auth" and as_text(given[name]) == "none"
        if name not in used and not name.startswith(elsewhere) and not harmless:
            advice = (why for start, why in _WHY_UNUSED.items() if _bare(name).startswith(start))
            raise file.error(f"{name} has no effect: {next(advice, 'no listener uses it')}; change it or leave it out")


def _prefix(listener: str) -> str:
    """The beginning of the settings for one listener."""
    return f"{_PREFIX}{listener.lower()}."


def _bare(name: str) -> str:
    """The name of a setting, without the listener and the mechanism."""
    if not name.startswith(_PREFIX):
        return name
    _, _, rest = name.removeprefix(_PREFIX).partition(".")
    mechanism, _, setting = rest.partition(".")
    return setting if mechanism in ("plain", "scram-sha-256", "scram-sha-512", "oauthbearer") else rest


def _controllers(kafkas: Mapping[str, Any]) -> list[str]:
    """The names of the listeners for controllers."""
    return as_text(kafkas.get("controller.listener.names", "")).split(",")


Address = tuple[str, SecurityProtocol, str | None, str | None]
"""Name, protocol, the address to listen on and the one to advertise."""


def _addresses(file: ConfigFile, kafkas: Mapping[str, Any]) -> dict[str, Address]:
    """The listeners for clients by name."""
    from ottla.addresses import without_user

    controllers = _controllers(kafkas)
    protocols = dict(
        each.strip().partition(":")[::2]
        for each in as_text(kafkas.get("listener.security.protocol.map", "")).split(",")
    )
    found: dict[str, Address] = {}
    for setting in ("listeners", "advertised.listeners"):
        if setting not in kafkas:
            continue
        count = 0
        for each in as_text(kafkas[setting]).split(","):
            if (listener := _LISTENER.fullmatch(each.strip())) is None:
                raise file.error(
                    f"{setting}: {without_user(each)!r} is not a listener, as in PLAINTEXT://localhost:9092"
                )
            title, host, port = listener.groups()
            if title in controllers:
                continue
            count += 1
            try:
                protocol = SecurityProtocol(protocols.get(title, title).upper())
            except ValueError:
                advice = f"give {title}:SSL or another one in listener.security.protocol.map"
                raise file.error(f"{setting}: {title} is not a security protocol: {advice}") from None
            address = f"{host or '0.0.0.0'}:{port}"
            if setting == "listeners":
                if title in found:
                    raise file.error(f"{setting} has two listeners of the name {title}")
                found[title] = title, protocol, address, None
            elif title in found:
                found[title] = (*found[title][:3], address)
            elif "listeners" not in kafkas:
                found[title] = title, protocol, None, address
            else:
                raise file.error(f"{setting} has {title}, which is not in listeners")
        if not count:
            raise file.error(f"{setting} must have a listener for clients, and has none")
    return found


def _listener(
    file: ConfigFile,
    settings: "_Settings",
    name: str,
    protocol: SecurityProtocol,
    listen: str | None,
    advertise: str | None,
    elsewhere: Elsewhere | None,
) -> ListenerConfig:
    from ottla.addresses import parse_address
    from ottla.subject_mapping import SubjectMapping

    if listen is None:
        raise file.error(f"advertised.listeners has {name}: give listeners, too")
    try:
        host, port = parse_address(listen, "listeners", any_port=True)
        tls = _tls(settings, protocol) if protocol.has_tls else None
        maps = tls is not None and tls.client_certificates != "none" and not protocol.has_sasl
        rules = settings.text("ssl.principal.mapping.rules") if maps else ""
        return ListenerConfig(
            protocol=protocol,
            name=name,
            host=host,
            port=port,
            advertise=advertise,
            tls=tls,
            subjects=SubjectMapping.parse(rules) if rules else None,
            sasl=_sasl(settings, elsewhere) if protocol.has_sasl else None,
        )
    except ConfigurationError as error:
        text = str(error)
        raise error if text.startswith(str(file.path)) else file.error(f"listener {name}: {text}") from None


class _Settings:
    """The settings of one listener.

    Args:
        used: gets each name that is looked up.
    """

    def __init__(self, file: ConfigFile, given: Mapping[str, Any], listener: str, used: set[str]) -> None:
        self._file, self._given, self._prefix, self._used = file, given, _prefix(listener), used

    def text(self, name: str, *, own: bool = False, mechanism: str = "") -> str:
        """A value; empty if there is none.

        Args:
            own: only the value that is given for this listener alone counts.
            mechanism: a value for this mechanism goes first.
        """
        names = [self._prefix + name] if own else [self._prefix + name, name]
        if mechanism:
            names = [f"{self._prefix}{mechanism.lower()}.{name}", *names]
        self._used.update(names)
        return as_text(next((self._given[each] for each in names if each in self._given), ""))

    def number(self, name: str, unit: float = 1.0, mechanism: str = "") -> float | None:
        """A number that is at least 0, times a unit."""
        text = self.text(name, mechanism=mechanism)
        if not text:
            return None
        if not re.fullmatch("[0-9]{1,15}", text):
            raise self._file.error(f"{name} is {text!r}; it must be an integer that is at least 0")
        return int(text) * unit


def _tls(settings: _Settings, protocol: SecurityProtocol) -> Any:
    from ottla.tls import ClientCertificates, ServerTLS

    _check_type(settings, "ssl.keystore.type")
    certificate = settings.text("ssl.keystore.location") or settings.text("ssl.keystore.certificate.chain")
    if not certificate:
        raise ConfigurationError("give its certificate and its key, in PEM, as ssl.keystore.location")
    auth = settings.text("ssl.client.auth", own=protocol.has_sasl) or "none"
    if auth not in ("none", "requested", "required"):
        raise ConfigurationError(f"ssl.client.auth is {auth!r}; it must be none, requested or required")
    clients: ClientCertificates = auth  # type: ignore[assignment] # just checked
    trusted = None
    if clients != "none":
        _check_type(settings, "ssl.truststore.type")
        trusted = settings.text("ssl.truststore.location") or settings.text("ssl.truststore.certificates")
        if not trusted:
            raise ConfigurationError(
                f"ssl.client.auth is {auth}: give the CA of the clients as ssl.truststore.location"
            )
    return ServerTLS(
        certificate=certificate,
        key=settings.text("ssl.keystore.key") or None,
        key_password=settings.text("ssl.key.password") or None,
        ca=trusted,
        client_certificates=clients,
    )


def _check_type(settings: _Settings, name: str) -> None:
    if (kind := settings.text(name)) and kind.upper() != "PEM":
        raise ConfigurationError(f"{name} is {kind}; it must be PEM: convert the file with openssl")


def _sasl(settings: _Settings, elsewhere: Elsewhere | None) -> Any:
    from ottla.sasl_server.settings import MAX_RECEIVE, SaslSettings

    mechanisms = _listed(settings.text("sasl.enabled.mechanisms"))
    if not mechanisms:
        raise ConfigurationError("give its mechanisms as sasl.enabled.mechanisms, for example SCRAM-SHA-512")
    max_receive = int(settings.number("sasl.server.max.receive.size") or MAX_RECEIVE)
    if elsewhere is not None:
        reads = elsewhere.reads_tokens and "OAUTHBEARER" in mechanisms
        claim = settings.text("sasl.oauthbearer.sub.claim.name", mechanism="OAUTHBEARER") if reads else ""
        return SaslSettings(mechanisms=mechanisms, max_receive=max_receive, relayed=True, claim=claim or "sub")
    lengths = {each: settings.number("connections.max.reauth.ms", 0.001, each) for each in mechanisms}
    delay = settings.number("connection.failed.authentication.delay.ms", 0.001)
    return SaslSettings(
        mechanisms=mechanisms,
        oauth=_oauth(settings) if "OAUTHBEARER" in mechanisms else None,
        max_reauth={each: length for each, length in lengths.items() if length},
        failure_delay=0.1 if delay is None else delay,
        max_receive=max_receive,
    )


def _oauth(settings: _Settings) -> Any:
    """The settings of OAUTHBEARER, each of which may be given for the listener and the mechanism; ``None``: no keys."""
    from ottla.sasl_server.settings import OAuthSettings

    def text(name: str) -> str:
        return settings.text("sasl.oauthbearer." + name, mechanism="OAUTHBEARER")

    def number(name: str, unit: float = 1.0) -> float | None:
        return settings.number("sasl.oauthbearer." + name, unit, "OAUTHBEARER")

    if not (jwks := text("jwks.endpoint.url")):
        return None
    optional: dict[str, Any] = {
        "issuer": text("expected.issuer"),
        "audience": _listed(text("expected.audience")),
        "subject": text("sub.claim.name"),
        "clock_skew": number("clock.skew.seconds"),
        "refresh": number("jwks.endpoint.refresh.ms", 0.001),
    }
    return OAuthSettings(jwks=jwks, **{name: value for name, value in optional.items() if value not in ("", None, ())})


def _listed(text: str) -> tuple[str, ...]:
    return tuple(each.strip() for each in text.split(",") if each.strip())


def as_text(value: Any) -> str:
    """A value as Kafka writes it."""
    if isinstance(value, list):
        return ",".join(map(str, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
