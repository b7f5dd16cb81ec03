"""The login of a client to upstream, through the proxy: modes `relay` and `forward`.

Rules:
- Before its login a client may only ask for versions, and log in. The proxy closes its connection otherwise, as a
  broker does, so that no stranger has upstream work for it.
- The mechanisms of the listener count: upstream may have others, such as GSSAPI, whose names of services contain hosts.
- Other requests of a client that authenticates again close its connection, as with Apache Kafka: records for rewritten
  topics would not wait for the answer of upstream.
- The handshake of such a client waits for the responses to its earlier requests: some wait in the proxy (EndTxn), and
  upstream accepts none of them before the token. The response to the handshake would have to wait for theirs anyway.
- A client is not let in before the proxy knows that this is upstream, and not another cluster: the proxy asks for its
  cluster id on the connection on which the client has logged in.
- Only the newer handshake passes (KIP-152): after the older one, tokens are no requests.
- A refused login is logged with the name in its first token, by which the operator finds the client.
- In mode `relay` the proxy keeps no token. In mode `forward` it passes the first one on to `Principals`, once upstream
  has let the client in, because connections of the proxy need it.
- After the end of the session that upstream has granted, the next other request closes the connection: records for
  rewritten topics would not reach the connection on which upstream notices it (KIP-368). Clients that do not ask for
  its length (SaslAuthenticate version 0) have the proxy ask in mode `forward`.
- In mode `forward` a session without a length ends with its token. Apache Kafka grants a length of 0, which clients
  take for no end, to a token that has expired within its clock skew, and ends that session at the next request.
- The listener limits the time and the bytes before a login (`ottla.serve.newcomers`).

Source: SaslServerAuthenticator.java; KIP-43, KIP-152, KIP-368.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial

from ottla.codec.apis.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.codec.apis.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.codec.frames import parse_request, parse_response
from ottla.codec.wire import Buffer
from ottla.errors import RemoteProtocolError, UnsupportedSaslMechanism, broker_error
from ottla.proxy.clients.client_connection import ClientConnection, ClientRequest
from ottla.proxy.clients.client_link import ClientLink
from ottla.proxy.clients.offering import AUTHENTICATE, HANDSHAKE
from ottla.proxy.upstream.link import Parts
from ottla.proxy.upstream.principals import expiry_of, user_named_in

_ROUNDS = {"PLAIN": 1, "OAUTHBEARER": 1, "SCRAM-SHA-256": 2, "SCRAM-SHA-512": 2}
"""The successful answers after which a client has logged in."""

_LONGEST = 512 * 2**10
"""The most bytes of a request of SASL, as for the logins that the proxy checks itself."""

_TELLS_LIFETIME = 1
"""The first version of SaslAuthenticate whose answer has the length of the session."""

Accepted = Callable[[str, bytes, float], None]
"""Called with the mechanism and the token of a client that upstream has let in, and when its session ends."""


class RelayedLogin:
    """Passes the login of one client on to upstream.

    Args:
        mechanisms: the listener lets these pass.
        accepted: gets the token (mode `forward`); ``None``: no token is kept.
        wall: returns the time of day, in seconds since 1970; ``None``: it is unknown.

    Attributes:
        done: upstream has let the client in.
    """

    def __init__(
        self,
        client: ClientConnection,
        link: ClientLink,
        mechanisms: Sequence[str],
        accepted: Accepted | None = None,
        wall: Callable[[], float] | None = None,
    ) -> None:
        self._client, self._link, self._mechanisms = client, link, tuple(mechanisms)
        self._accepted, self._wall = accepted, wall
        self.done = False
        self._ends_at = math.inf
        """When the session ends, at the latest: upstream counts from a later time."""
        self._asked_at = 0.0
        """When the client sent its last token."""
        self._asks = False
        """A request of SASL has no answer yet. One at a time, so that a token and its answer cannot be mixed up."""
        self._token: bytes | None = None
        """The token of that request, in mode `forward`."""
        self._left = 0
        """Successful answers until upstream has let the client in; 0: none is expected."""
        self._mechanism = ""
        """The mechanism that the client has named last."""
        self._who = ""
        """The client in log lines: the user in the first token of the exchange, which is not known to be true."""
        self._begins = False
        """The next token is the first one of an exchange."""

    def is_open(self, now: float) -> bool:
        """Whether the client has logged in, its session has not ended, and it is not about to log in again."""
        return self.done and now < self._ends_at and not (self._left or self._asks)

    def check(self, key: int, name: str, now: float) -> None:
        """Check whether a request may come now.

        Raises:
            RemoteProtocolError: it may not.
        """
        if self.is_open(now) or key in (HANDSHAKE, AUTHENTICATE):
            return
        if self.done and now < self._ends_at:  # its records would be stored before upstream has answered
            raise RemoteProtocolError(f"{name} came before the client had authenticated again")
        if self.done:
            raise RemoteProtocolError("the session of the client has ended, and was not renewed")
        raise RemoteProtocolError(
            f"{name} came before SaslHandshake: this listener requires SASL, so set security.protocol and "
            f"sasl.mechanism ({', '.join(self._mechanisms)})"
        )

    def handle(self, request: ClientRequest, frame: Buffer, now: float) -> None:
        """Pass a request of SASL on.

        Raises:
            RemoteProtocolError: it may not come now, or is too long.
        """
        if self._asks:
            raise RemoteProtocolError("a request of SASL came before the answer to the previous one")
        if len(frame) > _LONGEST:
            raise RemoteProtocolError(f"a request of SASL of {len(frame)} bytes; it may have {_LONGEST}")
        if request.key == HANDSHAKE:
            self._handshake(request, frame, now)
        elif self._left:
            self._asked_at, self._asks = now, True
            asked: SaslAuthenticateRequest = parse_request(frame).message
            if self._begins:
                user = user_named_in(self._mechanism, bytes(asked.auth_bytes))
                self._who, self._begins = "a client" if user is None else f"user {user!r:.200}", False
            if self._accepted is not None:
                self._token = bytes(asked.auth_bytes)
            version = self._version(request)
            self._client.intercept(request.ticket, partial(self._authenticated, request, version), whole=True)
            self._link.pass_on(request, b"".join((frame[:2], version.to_bytes(2, "big"), frame[4:])), now)
        else:
            raise RemoteProtocolError("SaslAuthenticate came before SaslHandshake")

    def _version(self, request: ClientRequest) -> int:
        """The version in which upstream gets a SaslAuthenticate; 0 and 1 differ only in the answer."""
        if self._accepted is not None and request.version == 0 and self._link.newest(AUTHENTICATE) >= _TELLS_LIFETIME:
            return _TELLS_LIFETIME
        return request.version

    def _handshake(self, request: ClientRequest, frame: Buffer, now: float) -> None:
        asked: SaslHandshakeRequest = parse_request(frame).message
        if asked.mechanism not in self._mechanisms:
            code = UnsupportedSaslMechanism.code
            self._client.respond(request, SaslHandshakeResponse(error_code=code, mechanisms=self._mechanisms))
            return
        if self._left:
            raise RemoteProtocolError("SaslHandshake came before the exchange under way has ended")
        self._left, self._mechanism, self._asks = _ROUNDS[asked.mechanism], asked.mechanism, True
        self._begins = True
        self._client.intercept(request.ticket, partial(self._shaken, request), whole=True)
        self._link.pass_on(request, frame, now)

    def _shaken(self, request: ClientRequest, parts: Parts, left: int) -> None:
        """Answer with the mechanisms that both upstream and the listener have."""
        self._asks = False
        _, answer = parse_response(SaslHandshakeResponse, request.version, b"".join(parts)[4:])
        if answer.error_code:
            self._left = 0
            why = f"upstream refuses SaslHandshake: {broker_error(answer.error_code, '')}"
            if answer.error_code == UnsupportedSaslMechanism.code:
                why = f"upstream does not accept {self._mechanism}, but {', '.join(answer.mechanisms) or 'no other'}"
            self._refuse(why, answer.error_code)
        both = tuple(each for each in answer.mechanisms if each in self._mechanisms)
        self._client.respond(request, SaslHandshakeResponse(error_code=answer.error_code, mechanisms=both))

    def _authenticated(self, request: ClientRequest, version: int, parts: Parts, left: int) -> None:
        """Handle upstream's answer to a token."""
        _, answer = parse_response(SaslAuthenticateResponse, version, b"".join(parts)[4:])
        # OAUTHBEARER refuses a token by a message without an error code, and by the error in the next answer.
        refused = self._mechanism == "OAUTHBEARER" and answer.auth_bytes and not answer.error_code
        if not refused:
            self._left = 0 if answer.error_code else max(self._left - 1, 0)
        respond = partial(self._respond, request, version, answer, parts)
        if self._left or answer.error_code:
            self._token = None
            if answer.error_code:
                self.done = False
                self._refuse(f"upstream refuses {self._who} by {self._mechanism}", answer.error_code)
            respond()
            return

        def checked(now: float) -> None:
            self.done = True
            token, self._token = self._token, None
            self._begin_session(token, answer.session_lifetime_ms / 1000)
            respond()

        self._link.check_cluster(checked, self._link.now)

    def _respond(self, request: ClientRequest, version: int, answer: SaslAuthenticateResponse, parts: Parts) -> None:
        self._asks = False
        if version != request.version:
            self._client.respond(request, answer)
            return
        errors = (answer.error_code,) if answer.error_code else ()
        self._client.answer_now(request.ticket, *parts, errors=errors)

    def _refuse(self, why: str, code: int) -> None:
        # The name is the client's choice, so it makes no kind of failure: a host that tries many has one line a minute.
        self._client.refused(why, f"refused by upstream {self._mechanism} {code}")

    def _begin_session(self, token: bytes | None, lifetime: float) -> None:
        """Begin a session of so many seconds, with the token that upstream has accepted.

        Args:
            lifetime: 0: the session ends with the connection, in mode `forward` also with the token.
        """
        self._ends_at = self._asked_at + lifetime if lifetime > 0 else math.inf
        if self._accepted is not None and token is not None:
            if lifetime <= 0:
                self._ends_at = self._end_of(token)
            if self._ends_at > self._asked_at:
                self._accepted(self._mechanism, token, self._ends_at)
        self._client.welcome()

    def _end_of(self, token: bytes) -> float:
        expiry = expiry_of(token) if self._mechanism == "OAUTHBEARER" else None
        return math.inf if expiry is None or self._wall is None else self._asked_at + expiry - self._wall()
