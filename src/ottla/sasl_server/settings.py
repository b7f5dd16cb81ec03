"""The settings of a listener with SASL."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from ottla.errors import ConfigurationError
from ottla.sasl_server.scram import HASHES
from ottla.unknown_options import naming_options

MECHANISMS = ("PLAIN", *HASHES, "OAUTHBEARER")
MAX_RECEIVE = 512 * 2**10
"""Kafka's default of `sasl.server.max.receive.size`."""


@naming_options
@dataclass(frozen=True, kw_only=True)
class OAuthSettings:
    """How a listener checks the tokens of OAUTHBEARER.

    Attributes:
        jwks: the file with the keys that sign tokens, or its URL (`sasl.oauthbearer.jwks.endpoint.url`).
        issuer: the value of ``iss`` (`sasl.oauthbearer.expected.issuer`); ``None``: any.
        audience: one of them has to be in ``aud`` (`sasl.oauthbearer.expected.audience`); ``()``: not checked.
        subject: the claim with the user's name (`sasl.oauthbearer.sub.claim.name`).
        clock_skew: seconds by which clocks may differ (`sasl.oauthbearer.clock.skew.seconds`).
        refresh: seconds after which the keys are loaded again (`sasl.oauthbearer.jwks.endpoint.refresh.ms`).
        ca: the CA that signed the certificate of the URL, if it is not one of the system's.
    """

    jwks: str
    issuer: str | None = None
    audience: tuple[str, ...] = ()
    subject: str = "sub"
    clock_skew: float = 30.0
    refresh: float = 3600.0
    ca: str | None = None


@naming_options
@dataclass(frozen=True, kw_only=True)
class SaslSettings:
    """How the clients of a listener authenticate.

    Attributes:
        mechanisms: the ones that are offered (`sasl.enabled.mechanisms`).
        oauth: needed for OAUTHBEARER.
        max_reauth: seconds by mechanism after which clients have to authenticate again (`connections.max.reauth.ms`);
            without an entry a session ends with its credentials, or with its connection.
        failure_delay: seconds from a failure to its response (`connection.failed.authentication.delay.ms`).
        max_receive: bytes of a request before the client has authenticated (`sasl.server.max.receive.size`).
        relayed: another server authenticates the clients, so this one needs no keys.
        claim: of tokens that another server checks, with the user's name (`sasl.oauthbearer.sub.claim.name`).

    Raises:
        ConfigurationError: a mechanism is unknown, lacks its settings, or has settings though it is not offered.
    """

    mechanisms: tuple[str, ...]
    oauth: OAuthSettings | None = None
    max_reauth: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    failure_delay: float = 0.1
    max_receive: int = MAX_RECEIVE
    relayed: bool = False
    claim: str = "sub"

    def __post_init__(self) -> None:
        if not self.mechanisms:
            raise ConfigurationError("sasl: give at least one mechanism, as in SCRAM-SHA-512")
        if unknown := next((each for each in self.mechanisms if each not in MECHANISMS), None):
            raise ConfigurationError(f"sasl: {unknown!r} is not a mechanism: choose of {', '.join(MECHANISMS)}")
        if "OAUTHBEARER" in self.mechanisms and self.oauth is None and not self.relayed:
            raise ConfigurationError(
                "sasl: OAUTHBEARER needs the keys that sign tokens: give sasl.oauthbearer.jwks.endpoint.url"
            )
        if "OAUTHBEARER" not in self.mechanisms and self.oauth is not None:
            raise ConfigurationError("sasl: oauth is given, but OAUTHBEARER is not one of the mechanisms")
        if unused := next((each for each in self.max_reauth if each not in self.mechanisms), None):
            raise ConfigurationError(f"sasl: max_reauth has {unused}, which is not one of the mechanisms")
