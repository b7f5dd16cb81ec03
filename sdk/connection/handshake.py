"""The handshake before the first request: stages that follow one another on each new connection.

Rules:
- A stage sends requests and gets responses until it is done; then the next one begins. After the last one the
  connection is ready.
- A stage that fails raises, and the connection ends with that error.
- Each connection has its own stages, which know neither the time nor their connection.

ApiVersions is the first stage; SASL is the second, if configured. TLS comes before all of them.

Source: KIP-511 (a version of ApiVersions that the broker does not know is answered in v0 with error 35); KIP-152 (SASL
by requests); SaslClientAuthenticator.java.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ottla.codec import frames, wire
from ottla.codec.apis.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.codec.apis.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.codec.apis.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.codec.wire import Buffer
from ottla.errors import (
    AuthenticationFailed,
    IllegalSaslState,
    RemoteProtocolError,
    UnsupportedSaslMechanism,
    UnsupportedVersion,
    broker_error,
)
from ottla.sdk.connection.versions import Range, agreed
from ottla.version import __version__

if TYPE_CHECKING:
    from ottla.sdk.connection.credentials import ConnectionCredentials

SOFTWARE_NAME = "ottla"
_GIVE_TLS = "give tls=ottla.TLS(…), or security.protocol=SSL or SASL_SSL"
HINT_BEFORE = (
    " during the TLS handshake; listeners without TLS do that: leave out tls=, or set security.protocol=PLAINTEXT or "
    "SASL_PLAINTEXT"
)
HINT_AFTER = (
    " at the first request; listeners that require authentication (SASL) do that: give sasl=ottla.Plain(…), or another "
    "mechanism, or security.protocol=SASL_SSL or SASL_PLAINTEXT, sasl.mechanism, sasl.username and sasl.password"
)
"""The usual cause if the broker closes the connection before the first stage, and after the last."""
HINT_SILENT = (
    ": connected, but ApiVersions is not answered; HTTP servers and listeners with TLS behave like that (for TLS, "
    f"{_GIVE_TLS})"
)
"""The usual cause if the broker does not answer the first stage."""
_NO_SASL = "the listener has no SASL; leave out sasl=, or use another port"
NEWEST_API_VERSIONS = 3
"""The version of the first ApiVersions request to an unknown broker."""


class HandshakeRequest(NamedTuple):
    """A request of the handshake, and its version."""

    request: Any
    version: int


class Features(NamedTuple):
    """The finalized features of the cluster (KIP-584), as one broker knows them.

    Attributes:
        epoch: grows with each change; -1 if unknown.
        levels: by name, such as ``transaction.version``.
    """

    epoch: int = -1
    levels: Mapping[str, int] = {}


class Software(NamedTuple):
    """How a client's software introduces itself to brokers (KIP-511)."""

    name: str = SOFTWARE_NAME
    version: str = __version__


OURS = Software()


class Stage(Protocol):
    """One stage of the handshake.

    Attributes:
        name: of the request that waits for its response, for messages.
        hint: the usual cause if the broker closes the connection in this stage; follows the reason in messages.
    """

    name: str
    hint: str

    def begin(self) -> HandshakeRequest:
        """The first request."""
        ...

    def answered(self, frame: Buffer) -> HandshakeRequest | None:
        """Handle the response to the last request, without its length; return the next request, or ``None`` when done.

        Raises:
            OttlaError: the two sides cannot agree.
        """
        ...


class ApiVersions:
    """Learns which versions of which API the broker speaks.

    Args:
        known: the versions, if they are known already: then the stage is not needed.
        software: the client that introduces itself.

    Attributes:
        versions: per API key the lowest and the highest version; empty until they are known.
        features: the cluster's features; empty until the stage is done.
    """

    name = "ApiVersions"
    hint = (
        " at the request for its versions; HTTP servers, Kafka 0.9 and older, proxies whose broker is unavailable, "
        f"and listeners with TLS do that (for TLS, {_GIVE_TLS})"
    )

    def __init__(self, known: Mapping[int, Range] | None = None, software: Software = OURS) -> None:
        self._software = software
        self.versions: Mapping[int, Range] = known or {}
        self.features = Features()
        self._asked = NEWEST_API_VERSIONS

    def begin(self) -> HandshakeRequest:
        name, version = self._software
        request = ApiVersionsRequest(client_software_name=name, client_software_version=version)
        return HandshakeRequest(request, self._asked)

    def answered(self, frame: Buffer) -> HandshakeRequest | None:
        if int.from_bytes(frame[4:6], "big") == UnsupportedVersion.code:
            if self._asked == 0:
                raise RemoteProtocolError("the broker refused ApiVersions v0: it is too old or too new")
            self._asked = 0
            return self.begin()
        _, response = frames.parse_response(ApiVersionsResponse, self._asked, frame)
        if response.error_code:
            raise RemoteProtocolError(f"ApiVersions failed with error {response.error_code}")
        self.versions = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}
        levels = {each.name: each.max_version_level for each in response.finalized_features}
        self.features = Features(response.finalized_features_epoch, levels)
        return None


class Sasl:
    """Authenticates this client: agrees on the mechanism, then exchanges its tokens.

    Args:
        credentials: with the user's mechanism, such as `ottla.sasl.ScramSha512`.
        versions: per API key, the broker's versions; filled by the stage before.

    Attributes:
        lifetime: seconds of the session, once the stage is done; 0 if it lasts as long as the connection (KIP-368).
    """

    name = "SASL"

    def __init__(self, credentials: "ConnectionCredentials", versions: Callable[[], Mapping[int, Range]]) -> None:
        assert credentials.sasl is not None
        self._sasl, self._versions = credentials.sasl, versions
        self.hint = f" during authentication with {self._sasl.mechanism}"
        self.lifetime = 0.0
        self._exchange = credentials.exchange()
        self._version = -1
        """The version of SaslAuthenticate, once the mechanism is agreed on."""

    def begin(self) -> HandshakeRequest:
        if wire.api(SaslHandshakeRequest).key not in self._versions():  # such as ottla's own broker and proxy
            raise AuthenticationFailed(f"{self._sasl.who}: {_NO_SASL}")
        agreed(SaslHandshakeRequest, (1, 1), self._versions(), "the broker")
        return HandshakeRequest(SaslHandshakeRequest(mechanism=self._sasl.mechanism), 1)

    def answered(self, frame: Buffer) -> HandshakeRequest | None:
        if self._version < 0:
            _, chosen = frames.parse_response(SaslHandshakeResponse, 1, frame)
            self._refused_mechanism(chosen)
            self._version = agreed(SaslAuthenticateRequest, None, self._versions(), "the broker")
            return self._next(self._exchange.begin())
        _, answer = frames.parse_response(SaslAuthenticateResponse, self._version, frame)
        if answer.error_code:
            said = answer.error_message or broker_error(answer.error_code).name
            raise AuthenticationFailed(f"{self._sasl.who} is refused: {said}")
        self.lifetime = max(answer.session_lifetime_ms, 0) / 1000
        following = self._exchange.answered(answer.auth_bytes)
        return None if following is None else self._next(following)

    def _next(self, token: bytes) -> HandshakeRequest:
        return HandshakeRequest(SaslAuthenticateRequest(auth_bytes=token), self._version)

    def _refused_mechanism(self, answer: SaslHandshakeResponse) -> None:
        if not answer.error_code:
            return
        if answer.error_code == UnsupportedSaslMechanism.code:
            there = ", ".join(answer.mechanisms) or "none"
            raise AuthenticationFailed(f"{self._sasl.who}: the broker does not offer this mechanism; it has {there}")
        if answer.error_code == IllegalSaslState.code:
            raise AuthenticationFailed(f"{self._sasl.who}: {_NO_SASL}")
        raise AuthenticationFailed(f"{self._sasl.who} is refused: {broker_error(answer.error_code).name}")


class Handshake:
    """The stages of one connection, in their order; SASL is the last, if configured.

    Args:
        versions: the broker's versions, if they are known already (to renew a session): then ApiVersions is skipped.
        software: the client that introduces itself.
    """

    def __init__(
        self,
        *later: Stage,
        credentials: "ConnectionCredentials | None" = None,
        versions: Mapping[int, Range] | None = None,
        software: Software = OURS,
    ) -> None:
        self._versions = ApiVersions(versions, software)
        self._stages: list[Stage] = [*later] if versions is not None else [self._versions, *later]
        self._sasl: Sasl | None = None
        if credentials and credentials.sasl:
            self._sasl = Sasl(credentials, lambda: self.versions)
            self._stages.append(self._sasl)

    @property
    def stage(self) -> Stage:
        """The current stage."""
        return self._stages[0]

    @property
    def usual_cause(self) -> str:
        """The usual cause if the broker does not answer now, to follow the reason; empty if there is none."""
        return HINT_SILENT if self.stage is self._versions else ""

    @property
    def versions(self) -> Mapping[int, tuple[int, int]]:
        """Per API key, the broker's lowest and highest version; empty until it has sent them."""
        return self._versions.versions

    @property
    def features(self) -> Features:
        """The cluster's features; empty if they were not requested."""
        return self._versions.features

    @property
    def session_lifetime(self) -> float:
        """Seconds until this client has to authenticate again; 0 if it need not."""
        return self._sasl.lifetime if self._sasl else 0.0

    def begin(self) -> HandshakeRequest:
        """The very first request."""
        return self.stage.begin()

    def answered(self, frame: Buffer) -> HandshakeRequest | None:
        """Handle a response; the next request, or ``None`` when the last stage is done. Raises as `Stage.answered`."""
        step = self.stage.answered(frame)
        if step is None and len(self._stages) > 1:
            del self._stages[0]
            step = self.stage.begin()
        return step
