"""The login of a client to upstream, through the proxy: mode `relay`.

Rules:
- Before its login a client may only ask for versions, and log in. The proxy closes its connection otherwise, as a
  broker does, so that no stranger has upstream work for it.
- The mechanisms of the listener count: upstream may have others, such as GSSAPI, whose names of services contain hosts.
- Only the newer handshake passes (KIP-152): after the older one, tokens are no requests.
- The proxy keeps no token: it reads the error code of upstream's answer only.
- The listener limits the time and the bytes before a login (`ottla.serve.newcomers`).

Source: SaslServerAuthenticator.java; KIP-43, KIP-152.
"""

from collections.abc import Sequence
from functools import partial

from ottla.codec.apis.sasl_authenticate import SaslAuthenticateResponse
from ottla.codec.apis.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.codec.frames import parse_request, parse_response
from ottla.codec.wire import Buffer
from ottla.errors import RemoteProtocolError, UnsupportedSaslMechanism
from ottla.proxy.clients.client_connection import ClientConnection, ClientRequest
from ottla.proxy.clients.client_link import ClientLink
from ottla.proxy.clients.offering import AUTHENTICATE, HANDSHAKE
from ottla.proxy.upstream.link import Parts

_ROUNDS = {"PLAIN": 1, "OAUTHBEARER": 1, "SCRAM-SHA-256": 2, "SCRAM-SHA-512": 2}
"""The successful answers after which a client has logged in."""


class RelayedLogin:
    """Passes the login of one client on to upstream.

    Args:
        mechanisms: the listener lets these pass.

    Attributes:
        done: upstream has let the client in.
    """

    def __init__(self, client: ClientConnection, link: ClientLink, mechanisms: Sequence[str]) -> None:
        self._client, self._link, self._mechanisms = client, link, tuple(mechanisms)
        self.done = False
        self._left = 0
        """Successful answers until upstream has let the client in; 0: none is expected."""
        self._bearer = False
        """The exchange is one of OAUTHBEARER."""

    def check(self, key: int, name: str) -> None:
        """Check whether a request may come now.

        Raises:
            RemoteProtocolError: it may not.
        """
        if self.done or key in (HANDSHAKE, AUTHENTICATE):
            return
        raise RemoteProtocolError(
            f"{name} came before SaslHandshake: this listener requires SASL, so set security.protocol and "
            f"sasl.mechanism ({', '.join(self._mechanisms)})"
        )

    def handle(self, request: ClientRequest, frame: Buffer, now: float) -> None:
        """Pass a request of SASL on."""
        if request.key == HANDSHAKE:
            self._handshake(request, frame, now)
        elif self._left:
            self._client.intercept(request.ticket, partial(self._authenticated, request), whole=True)
            self._link.pass_on(request, frame, now)
        else:
            raise RemoteProtocolError("SaslAuthenticate came before SaslHandshake")

    def _handshake(self, request: ClientRequest, frame: Buffer, now: float) -> None:
        asked: SaslHandshakeRequest = parse_request(frame).message
        if asked.mechanism not in self._mechanisms:
            code = UnsupportedSaslMechanism.code
            self._client.respond(request, SaslHandshakeResponse(error_code=code, mechanisms=self._mechanisms))
            return
        if self._left:
            raise RemoteProtocolError("SaslHandshake came before the exchange under way has ended")
        self._left, self._bearer = _ROUNDS[asked.mechanism], asked.mechanism == "OAUTHBEARER"
        self._client.intercept(request.ticket, partial(self._shaken, request), whole=True)
        self._link.pass_on(request, frame, now)

    def _shaken(self, request: ClientRequest, parts: Parts, left: int) -> None:
        """Answer with the mechanisms that both upstream and the listener have."""
        _, answer = parse_response(SaslHandshakeResponse, request.version, b"".join(parts)[4:])
        if answer.error_code:
            self._left = 0
        both = tuple(each for each in answer.mechanisms if each in self._mechanisms)
        self._client.respond(request, SaslHandshakeResponse(error_code=answer.error_code, mechanisms=both))

    def _authenticated(self, request: ClientRequest, parts: Parts, left: int) -> None:
        frame = b"".join(parts)[4:]
        _, answer = parse_response(SaslAuthenticateResponse, request.version, frame)
        # OAUTHBEARER refuses a token by a message without an error code, and by the error in the next answer.
        refused = self._bearer and answer.auth_bytes and not answer.error_code
        if not refused:
            self._left = 0 if answer.error_code else max(self._left - 1, 0)
        if not self._left:
            self.done = not answer.error_code
        if self.done:
            self._client.welcome()
        errors = (answer.error_code,) if answer.error_code else ()
        self._client.answer_now(request.ticket, *parts, errors=errors)
