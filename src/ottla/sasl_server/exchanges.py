"""The mechanisms of SASL, token by token, on the side of the server.

An exchange is a generator. It gets the client's tokens, and yields `Challenge` (a token for the client, which answers
with another one) or `Check` (work for a thread, whose result it gets). It returns a `Login`, or raises `Refused`.

Rules:
- The texts of refusals are Apache Kafka's. They do not tell an unknown user from a wrong password.
- Anyone may send a token, and the loop parses it, so the time may only grow in proportion to its length.

Source: PlainSaslServer.java; ScramSaslServer.java; OAuthBearerSaslServer.java, OAuthBearerClientInitialResponse.java.
"""

import base64
import json
from collections.abc import Callable, Generator
from typing import Any, NamedTuple, Protocol

from ottla.sasl_server import scram
from ottla.sasl_server.users import Users

PLAIN, OAUTHBEARER = "PLAIN", "OAUTHBEARER"
_LONGEST_BEARER = 64 * 2**10
"""Bytes of a message of OAUTHBEARER; the tokens in real ones have one to four thousand."""


class Challenge(NamedTuple):
    """A token for the client, which answers with another one."""

    token: bytes


class Check(NamedTuple):
    """Work for a thread; the exchange continues with its result.

    Attributes:
        may_wait: the work may wait for another server, and hardly computes.
    """

    work: Callable[[], Any]
    may_wait: bool = False


class Login(NamedTuple):
    """The end of a successful exchange.

    Attributes:
        user: the name of the client's principal.
        token: the last one for the client.
        expires_at: seconds since 1970, if the credentials expire.
    """

    user: str
    token: bytes = b""
    expires_at: float | None = None


class Refused(Exception):
    """The credentials are refused; the text is for the client.

    Attributes:
        who: the user, as far as the client has named one.
        why: the reason that the server logs; parts of it that the client chose are escaped and cut.
    """

    def __init__(self, text: str, who: str | None = None, why: str = "") -> None:
        super().__init__(text)
        self.who, self.why = who, why


Exchange = Generator[Challenge | Check, Any, Login]


class TokenChecker(Protocol):
    """Checks tokens."""

    def check(self, token: str) -> tuple[str, float]:
        """The subject of a token, and when it expires, in seconds since 1970; may block.

        Raises:
            Refused: the token is not valid.
        """
        ...


class PasswordChecker(Protocol):
    """Checks passwords."""

    def known(self, user: str, password: str) -> bool:
        """Whether this password was right a short while ago; does not block."""
        ...

    def check(self, user: str, password: str) -> bool:
        """Whether it is right; blocks for some milliseconds."""
        ...


def plain(passwords: PasswordChecker, token: bytes) -> Exchange:
    """PLAIN: the client sends its name and its password."""
    parts = token.split(b"\0")
    if len(parts) != 3:
        raise Refused(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
    try:
        authorization, user, password = (each.decode() for each in parts)
    except UnicodeDecodeError:
        raise Refused("Authentication failed: Invalid username or password") from None
    if not user:
        raise Refused("Authentication failed: username not specified")
    if not password:
        raise Refused("Authentication failed: password not specified", user)
    if not passwords.known(user, password):
        right = yield Check(lambda: passwords.check(user, password))
        if right is not True:
            raise Refused("Authentication failed: Invalid username or password", user)
    _check_authorization(authorization, user)
    return Login(user)


def scram_exchange(mechanism: str, users: Users, nonce: str, token: bytes) -> Exchange:
    """SCRAM: both sides prove that they know the password.

    Args:
        nonce: random, printable ASCII without commas.
    """
    invalid = "Authentication failed during authentication due to invalid credentials with SASL mechanism " + mechanism
    user: str | None = None
    try:
        first = scram.parse_first(token)
        user = first.user
        credential = users.credential(mechanism, user)
        both = first.nonce + nonce
        challenge = scram.build_first(both, credential)
        final = scram.parse_final((yield Challenge(challenge.encode())))
    except scram.Malformed:
        raise Refused(invalid, user) from None
    message = f"{first.bare},{challenge},{final.without_proof}".encode()
    # librdkafka before 2.6.1 sends its own nonce, and then the full one. The proof covers both, and the server's part
    # is still fresh. (librdkafka's pull request 4895; `endsWith` in Apache Kafka 3.8.1)
    same = final.nonce.endswith(both)
    bound = final.binding == base64.b64encode(first.header.encode()).decode()
    proven = scram.proves(credential, message, final.proof)
    changed = (
        users.credential(mechanism, user) != credential
    )  # since the challenge: the old password is no longer right
    if changed or not (same and bound and proven):
        raise Refused(invalid, user)
    _check_authorization(first.authorization_id, user)
    return Login(user, scram.build_final(credential, message))


def bearer(tokens: TokenChecker, token: bytes) -> Exchange:
    """OAUTHBEARER: the client sends a token that somebody else has signed."""
    parsed = parse_bearer(token.decode("latin-1")) if len(token) <= _LONGEST_BEARER else None
    if parsed is None:
        text = "not an OAUTHBEARER response"
        raise Refused(f"Authentication failed: {text}", why=text)
    authorization, signed = parsed

    def check() -> tuple[str, float] | Refused:
        try:
            return tokens.check(signed)
        except Refused as error:
            return error

    checked = yield Check(check, may_wait=True)
    if isinstance(checked, Refused):
        # The client has to answer before it learns the error (RFC 7628, 3.2.3).
        said = json.dumps({"status": str(checked)}, separators=(",", ":"))
        yield Challenge(said.encode())
        raise Refused(said, checked.who, checked.why)
    user, expires_at = checked
    _check_authorization(authorization, user)
    return Login(user, b"", expires_at)


def parse_bearer(message: str) -> tuple[str, str] | None:
    """The authorization id and the token of ``n,a=id,^Aauth=Bearer token^A^A`` (RFC 7628, 3.1), if it is one."""
    header, *pairs = message.split("\x01")
    if header.count(",") != 2 or len(pairs) < 3 or pairs[-2:] != ["", ""]:
        return None
    flag, authorization, rest = header.split(",")
    if flag != "n" or rest or not (authorization.startswith("a=") or not authorization):
        return None
    values = {name: value for name, _, value in (pair.partition("=") for pair in pairs[:-2])}
    if len(values) != len(pairs) - 2 or not all(name.isascii() and name.isalpha() for name in values):
        return None
    scheme, _, signed = values.get("auth", "").partition(" ")
    signed = signed.lstrip(" ")
    if scheme not in ("Bearer", "bearer") or not signed or not all("!" <= each <= "~" for each in signed):
        return None
    return authorization.removeprefix("a="), signed


def _check_authorization(authorization: str | None, user: str) -> None:
    if authorization and authorization != user:
        text = "Authentication failed: Client requested an authorization id that is different from username"
        raise Refused(text, user, f"it asks for the authorization id {authorization!r:.200}")
