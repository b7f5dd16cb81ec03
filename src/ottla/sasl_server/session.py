"""The authentication of one connection: a machine that gets its requests, and says what to do with each.

    session = SaslSession(mechanisms, settings)
    step = session.take(frame, now, wall)        # PassOn, SaslAnswer, Check or SaslEnd
    step = session.checked(result, now, wall)    # after a Check

Rules:
- SaslHandshake v1 is followed by SaslAuthenticate requests, v0 by bare tokens, each in a frame of its own. A client
  that uses the wrong one of the two is disconnected.
- A client may authenticate again (KIP-368), at most once a second, with the same mechanism and as the same principal;
  other requests wait until that is done. After the end of its session, the next other request closes the connection.
- A failed exchange ends the connection. Its response is delayed, so that guessing takes time.

Source: SaslServerAuthenticator.java; KafkaChannel.java (maybeBeginServerReauthentication); KIP-152, KIP-368.
"""

import math
from collections.abc import Callable, Generator, Mapping
from typing import Any, NamedTuple, Never

from ottla.codec import frames
from ottla.codec.apis import NAMES
from ottla.codec.apis.sasl_authenticate import SaslAuthenticateResponse
from ottla.codec.apis.sasl_handshake import SaslHandshakeResponse
from ottla.codec.wire import Buffer
from ottla.errors import DecodeError, IllegalSaslState, RemoteProtocolError, SaslAuthenticationFailed
from ottla.errors import UnsupportedSaslMechanism as Unsupported
from ottla.sasl_server.exchanges import Challenge, Check, Exchange, Login, Refused
from ottla.sasl_server.settings import SaslSettings

HANDSHAKE, AUTHENTICATE = 17, 36
_SERVED = {HANDSHAKE: 1, AUTHENTICATE: 2}
"""API key -> its highest version."""
_LONGEST_LOGIN = 512 * 2**10
"""The most bytes of a SaslHandshake or SaslAuthenticate, also of a client that has logged in."""
_LONGEST = 64 * 2**10
"""Bytes of a request before the login that carries no token: its tagged fields take much more time than a token's
bytes. The longest client id has half as many."""
_SHORTEST = 1.0
"""Seconds between the beginnings of two exchanges on one connection."""


class PassOn(NamedTuple):
    """The service gets the request."""


class SaslAnswer(NamedTuple):
    """The client gets a frame.

    Attributes:
        errors: the error codes in it.
    """

    frame: bytes
    errors: tuple[int, ...] = ()


class SaslEnd(NamedTuple):
    """The connection ends after a delay.

    Attributes:
        why: for the log.
        who: the user, as far as the client has named one.
        answer: the last one for the client; ``None``: there is none.
    """

    why: str
    who: str | None
    answer: SaslAnswer | None


Step = PassOn | SaslAnswer | Check | SaslEnd
PASS_ON = PassOn()
Mechanism = Callable[[bytes], Exchange]
"""Begins an exchange with the client's first token."""


class SaslSession:
    """Authenticates the client of one connection.

    Args:
        mechanisms: name -> mechanism, in the order in which clients see them.

    Attributes:
        login: the client has authenticated, as this user; ``None`` before.
        mechanism: by which it did.
        expects_token: the next frame is a token without a header.
        ends_at: when the session ends, in monotonic seconds.
    """

    def __init__(self, mechanisms: Mapping[str, Mechanism], settings: SaslSettings) -> None:
        self._mechanisms, self._settings = mechanisms, settings
        self.login: Login | None = None
        self.mechanism = ""
        self.expects_token = False
        self._is_busy = False
        """An exchange is under way."""
        self._is_checking = False
        """It waits for the result of a `Check`; a frame in the place of the result would pass for one."""
        self._now = self._wall = 0.0
        self.ends_at = math.inf
        self._renewed_at = -math.inf
        self._life = self._run()
        next(self._life)

    @property
    def principal(self) -> str:
        """Kafka's name of the client; it has authenticated."""
        assert self.login is not None
        return f"User:{self.login.user}"

    def is_open(self, now: float) -> bool:
        """Whether the service may get requests."""
        return self.login is not None and now < self.ends_at and not self._is_busy

    def take(self, frame: Buffer, now: float, wall: float) -> Step:
        """Take a request.

        Args:
            now: monotonic seconds.
            wall: seconds since 1970; tokens expire by it.

        Raises:
            RemoteProtocolError: the request is not allowed now; the connection is to be closed.
        """
        if self._is_checking:
            raise RemoteProtocolError("a request came while the one before is still checked")
        if self.is_open(now) and frames.asked(frame)[0] not in (HANDSHAKE, AUTHENTICATE):
            return PASS_ON
        return self._go_on(frame, now, wall)

    def checked(self, result: Any, now: float, wall: float) -> Step:
        """Continue with the result of a `Check`."""
        return self._go_on(result, now, wall)

    def _go_on(self, given: Any, now: float, wall: float) -> Step:
        self._now, self._wall = now, wall
        step: Step = self._life.send(given)
        self._is_checking = isinstance(step, Check)
        return step

    def _run(self) -> Generator[Any, Any, Never]:
        frame: Buffer = yield None
        while frames.asked(frame)[0] == frames.API_VERSIONS:
            _check_length(frame)
            frame = yield PASS_ON
        frame = yield from self._authenticate(frame)
        while True:
            if frames.asked(frame)[0] == HANDSHAKE:
                if self._now >= self._renewed_at + _SHORTEST:
                    frame = yield from self._authenticate(frame)
                    continue
                refused = SaslHandshakeResponse(error_code=IllegalSaslState.code, mechanisms=tuple(self._mechanisms))
                frame = yield _answer(refused, *self._parsed(frame, HANDSHAKE)[1:], (IllegalSaslState.code,))
            elif self._now >= self.ends_at:
                raise RemoteProtocolError(f"the session of {self.principal!r:.200} has ended, and was not renewed")
            elif frames.asked(frame)[0] == AUTHENTICATE:
                _, version, number = self._parsed(frame, AUTHENTICATE)
                frame = yield _answer(misplaced_token(), version, number, (IllegalSaslState.code,))
            else:
                frame = yield PASS_ON

    def _authenticate(self, frame: Buffer) -> Generator[Step, Any, Buffer]:
        """Run one exchange, from the handshake to the last token; return the next request."""
        self._is_busy, self._renewed_at = True, self._now
        _check_length(frame)
        request, version, number = self._parsed(frame, HANDSHAKE)
        name: str = request.mechanism
        if name not in self._mechanisms or (self.login is not None and name != self.mechanism):
            said = SaslHandshakeResponse(error_code=Unsupported.code, mechanisms=tuple(self._mechanisms))
            yield from _end(SaslEnd(self._misfit(name), None, _answer(said, version, number, (Unsupported.code,))))
        welcome = SaslHandshakeResponse(error_code=0, mechanisms=tuple(self._mechanisms))
        self.expects_token = bare = version == 0
        frame = yield _answer(welcome, version, number)
        token, reply = self._token(frame, bare)
        try:
            exchange = self._mechanisms[name](token)
            step: Challenge | Check = next(exchange)
            while True:
                if isinstance(step, Check):
                    step = exchange.send((yield step))
                else:
                    frame = yield reply(0, None, step.token, 0)
                    token, reply = self._token(frame, bare)
                    step = exchange.send(token)
        except StopIteration as done:
            login: Login = done.value
        except Refused as error:
            yield from _end(self._refusal(name, error, reply))
        if self.login is not None and login.user != self.login.user:
            text = f"Cannot change principals during re-authentication from User:{self.login.user} to User:{login.user}"
            yield from _end(self._refusal(name, Refused(text, login.user), reply))
        lifetime = self._begin(name, login)
        frame = yield reply(0, None, login.token, lifetime)
        return frame

    def _begin(self, mechanism: str, login: Login) -> int:
        """Begin a session; return its length in milliseconds, 0 if it has no end."""
        self.login, self.mechanism, self._is_busy, self.expects_token = login, mechanism, False, False
        lengths = []
        if most := self._settings.max_reauth.get(mechanism):
            lengths.append(most)
        if login.expires_at is not None:
            lengths.append(max(login.expires_at - self._wall, 0.0))
        self.ends_at = self._now + min(lengths, default=math.inf)
        return int(min(lengths) * 1000) if lengths else 0

    def _misfit(self, mechanism: str) -> str:
        """Why this mechanism cannot be used."""
        if mechanism in self._mechanisms:
            return f"a client of {self.mechanism} wants to authenticate again by {mechanism}"
        return f"a client wants {mechanism!r:.50}, and the listener has {', '.join(self._mechanisms)}"

    def _refusal(self, mechanism: str, error: Refused, reply: "Callable[..., SaslAnswer]") -> SaslEnd:
        who = "a client" if error.who is None else f"user {error.who!r:.200}"
        text = str(error)
        if self.login is not None:
            text = text.replace("during authentication", "during re-authentication")
        why = f"{who} is refused by {mechanism}" + (f": {error.why}" if error.why else "")
        return SaslEnd(why, error.who, reply(SaslAuthenticationFailed.code, text, b"", 0))

    def _token(self, frame: Buffer, bare: bool) -> "tuple[bytes, Callable[..., SaslAnswer]]":
        """The client's token, and how to answer."""
        if bare:
            return bytes(frame), _bare_answer
        request, version, number = self._parsed(frame, AUTHENTICATE)

        def reply(code: int, text: str | None, token: bytes, lifetime_ms: int) -> SaslAnswer:
            said = SaslAuthenticateResponse(
                error_code=code, error_message=text, auth_bytes=token, session_lifetime_ms=lifetime_ms
            )
            return _answer(said, version, number, (code,) if code else ())

        return request.auth_bytes, reply

    def _parsed(self, frame: Buffer, wanted: int) -> tuple[Any, int, int]:
        """The message of a request, its version, and its correlation id."""
        if len(frame) > _LONGEST_LOGIN:  # its tagged fields may take much more memory than their bytes
            raise RemoteProtocolError(f"a request of {len(frame)} bytes for a login; it may have {_LONGEST_LOGIN}")
        key, version = frames.asked(frame)
        name = NAMES.get(key, f"API {key}")
        if key != wanted:
            when = "before" if self.login is None else "while it authenticates again, before"
            raise RemoteProtocolError(
                f"{name} came {when} {NAMES[wanted]}: this listener requires SASL, so set security.protocol and "
                f"sasl.mechanism ({', '.join(self._mechanisms)})"
            )
        if not 0 <= version <= _SERVED[key]:
            raise RemoteProtocolError(f"{name} {frames.version_text(version)} is not served")
        try:
            request = frames.parse_request(frame)
        except DecodeError:  # whose text may show a secret
            raise RemoteProtocolError(f"{name} cannot be read") from None
        return request.message, version, request.header.correlation_id


def _check_length(frame: Buffer) -> None:
    if len(frame) > _LONGEST:
        raise RemoteProtocolError(f"a request of {len(frame)} bytes before the login; it may have {_LONGEST}")


def misplaced_token() -> SaslAuthenticateResponse:
    """The response to a SaslAuthenticate outside of an exchange, with Kafka's text."""
    text = "SaslAuthenticate request received after successful authentication"
    return SaslAuthenticateResponse(error_code=IllegalSaslState.code, error_message=text, auth_bytes=b"")


def _answer(message: Any, version: int, correlation_id: int, errors: tuple[int, ...] = ()) -> SaslAnswer:
    return SaslAnswer(frames.build_response(message, version, correlation_id), errors)


def _bare_answer(code: int, text: str | None, token: bytes, lifetime_ms: int) -> SaslAnswer:
    """A frame with a token alone; an error has none, and only closes the connection."""
    return SaslAnswer(b"" if code else frames.framed(token), (code,) if code else ())


def _end(close: SaslEnd) -> Generator[Step, Any, Never]:
    """Yield the last step."""
    yield close
    raise AssertionError("the connection has ended")
