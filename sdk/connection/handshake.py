"""What two sides agree on before the first request: stages that follow one another on each new connection.

Rules:
- A stage asks and is answered until it has nothing more to ask; then the next one begins. After the last one the
  connection is ready.
- A stage that fails raises, and the connection ends with that error.
- Each connection has stages of its own, which know neither time nor the connection that they are part of.

Today there is one, ApiVersions. SASL (SaslHandshake, SaslAuthenticate) follows it, and re-authentication (KIP-368) runs
the same stages again on a connection that is ready. TLS comes before all of them.

Source: KIP-511 (a version of ApiVersions that the broker does not know is answered in v0 with error 35).
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from ottla import __version__
from ottla.codec import frames
from ottla.codec.apis.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.codec.wire import Buffer
from ottla.errors import RemoteProtocolError, UnsupportedVersion

SOFTWARE_NAME = "ottla"
NEWEST_API_VERSIONS = 3
"""The version in which a broker that nothing is known of is asked first."""


class Step(NamedTuple):
    """A request of the handshake, and the version in which it is sent."""

    request: Any
    version: int


class Stage(Protocol):
    """One stage of the handshake.

    Attributes:
        name: what an answer is awaited to, for messages.
        hint: what it often means when the broker closes the connection in this stage, to follow the reason.
    """

    name: str
    hint: str

    def begin(self) -> Step:
        """The first request."""
        ...

    def answered(self, frame: Buffer) -> Step | None:
        """Take the answer to the last request, without its length; the next request, or ``None`` when it is done.

        Raises:
            OttlaError: the two sides do not agree.
        """
        ...


class ApiVersions:
    """Learns which versions of which API the broker speaks.

    Attributes:
        versions: per API key the lowest and the highest version; empty until the stage is done.
    """

    name = "ApiVersions"
    hint = " when asked for its versions; so do Kafka 0.9 and older, and listeners that want TLS"

    def __init__(self) -> None:
        self.versions: Mapping[int, tuple[int, int]] = {}
        self._asked = NEWEST_API_VERSIONS

    def begin(self) -> Step:
        request = ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=__version__)
        return Step(request, self._asked)

    def answered(self, frame: Buffer) -> Step | None:
        if int.from_bytes(frame[4:6], "big") == UnsupportedVersion.code:
            if self._asked == 0:
                raise RemoteProtocolError("ApiVersions v0 is refused: the broker is too old or too new")
            self._asked = 0
            return self.begin()
        _, response = frames.parse_response(ApiVersionsResponse, self._asked, frame)
        if response.error_code:
            raise RemoteProtocolError(f"ApiVersions failed with error {response.error_code}")
        self.versions = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}
        return None


class Handshake:
    """The stages of one connection, in their order."""

    def __init__(self, *later: Stage) -> None:
        self._versions = ApiVersions()
        self._stages: list[Stage] = [self._versions, *later]

    @property
    def stage(self) -> Stage:
        """The one that is under way."""
        return self._stages[0]

    @property
    def versions(self) -> Mapping[int, tuple[int, int]]:
        """Per API key the lowest and the highest version that the broker speaks; empty until it has said."""
        return self._versions.versions

    def begin(self) -> Step:
        """The first request of all."""
        return self.stage.begin()

    def answered(self, frame: Buffer) -> Step | None:
        """Take an answer; the next request, or ``None`` when the last stage is done. Raises as `Stage.answered`."""
        step = self.stage.answered(frame)
        if step is None and len(self._stages) > 1:
            del self._stages[0]
            step = self.stage.begin()
        return step
