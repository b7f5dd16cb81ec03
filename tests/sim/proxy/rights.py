"""The rights of clients in a guarded world, over time, and their logins."""

from collections import Counter
from collections.abc import Callable, Iterable
from random import Random
from typing import NamedTuple

from ottla.acl.acls import ANY_HOST, Acl
from ottla.client_info import ClientInfo
from ottla.codec import frames
from ottla.codec.apis.create_acls import AclOperation, AclPermissionType, PatternType, ResourceType
from ottla.errors import ConnectionLost, RemoteProtocolError
from ottla.proxy.acl_rules import AclRules
from ottla.sasl import OAuthBearer, Token
from ottla.sasl_server.exchanges import Exchange, Login, Refused
from ottla.sasl_server.session import PassOn, SaslAnswer, SaslEnd, SaslSession
from ottla.sasl_server.settings import OAuthSettings, SaslSettings
from ottla.sdk.events import TokenFetched
from tests.sim.clock import Clock
from tests.sim.logins import Endpoint
from tests.sim.network import Link
from tests.sim.users import Process

READ, WRITE = AclOperation.READ, AclOperation.WRITE
TOPIC, GROUP, TRANSACTIONAL_ID = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID


class Held(NamedTuple):
    """A right of a client, which it may lose for a while."""

    client: str
    operation: AclOperation
    kind: ResourceType
    name: str


class Rights:
    """Who may do what; changes are noted with their times.

    Attributes:
        held: all rights that clients have when no change takes them away.
    """

    def __init__(self, clock: Clock, held: Iterable[Held]) -> None:
        self.held = [*held]
        self._clock = clock
        self._missing: dict[Held, float] = {}
        """Right -> since when it is missing."""
        self._times: dict[Held, list[tuple[float, float]]] = {each: [] for each in self.held}
        self._by_deny: set[Held] = set()

    def take(self, right: Held, *, by_deny: bool) -> None:
        """Take a right away, by removing its ACL, or by adding an ACL that denies."""
        self._missing.setdefault(right, self._clock.now)
        if by_deny:
            self._by_deny.add(right)

    def give_back(self, right: Held) -> None:
        if (since := self._missing.pop(right, None)) is not None:
            self._times[right].append((since, self._clock.now))
        self._by_deny.discard(right)

    @property
    def all_there(self) -> bool:
        return not self._missing

    def acls(self) -> AclRules:
        """The ACLs as they are now."""
        allowed = [_acl(each, AclPermissionType.ALLOW) for each in self.held if self._is_allowed(each)]
        denied = [_acl(each, AclPermissionType.DENY) for each in self.held if each in self._by_deny]
        return AclRules((*allowed, *denied), ("User:admin",))

    def _is_allowed(self, right: Held) -> bool:
        return right not in self._missing or right in self._by_deny

    def has(self, right: Held) -> bool:
        """Whether a client has a right now."""
        return right in self._times and right not in self._missing

    def was_missing(self, right: Held, since: float) -> bool:
        """Whether a client did not have a right at some time from ``since`` on."""
        if right not in self._times or right in self._missing:
            return True
        return any(until >= since for _, until in self._times[right])

    def had(self, right: Held, since: float) -> bool:
        """Whether a client had a right at some time from ``since`` on."""
        return right in self._times and self._missing.get(right, self._clock.now) >= since


def _acl(right: Held, permission: AclPermissionType) -> Acl:
    return Acl(
        right.kind, right.name, PatternType.LITERAL, f"User:{right.client}", ANY_HOST, right.operation, permission
    )


class Logins:
    """Logins by tokens in front of the proxy, by the shipped `SaslSession`: sessions end, and the endpoint fails.

    Args:
        until: after this time the endpoint does not fail.
    """

    def __init__(self, clock: Clock, chance: Random, features: Counter[str], until: float) -> None:
        self._clock, self._chance, self._features, self._until = clock, chance, features, until
        self.sasl = OAuthBearer(Endpoint())
        self._settings = SaslSettings(
            mechanisms=("OAUTHBEARER",),
            oauth=OAuthSettings(jwks="none"),
            max_reauth={"OAUTHBEARER": chance.choice((2.0, 3.0, 30.0))},
        )
        self._lasts = chance.choice((6.0, 12.0, 60.0))
        self._tokens: dict[bytes, tuple[str, float]] = {}
        """Token -> the user, and when it expires."""
        self._sessions: dict[Link, SaslSession] = {}
        self._infos: dict[Link, ClientInfo] = {}

    @property
    def settings(self) -> SaslSettings:
        return self._settings

    # -- the endpoint

    def fetch(self, process: Process) -> None:
        self._clock.later(self._chance.choice((0.001, 0.02, 0.3)), lambda: process.hear(self._fetched(process)))

    def _fetched(self, process: Process) -> TokenFetched:
        if self._clock.now < self._until and self._chance.random() < 0.2:
            self._features["no token can be fetched"] += 1
            return TokenFetched(error=ConnectionLost("the endpoint cannot be reached"))
        lasts = self._lasts * self._chance.uniform(0.75, 1.0)
        return TokenFetched(Token(self.token_of(process.name, lasts).decode(), 0.0), lasts)

    def token_of(self, user: str, lasts: float = 1000.0) -> bytes:
        """Give a user a token that lasts for so many seconds."""
        token = b"t%d" % len(self._tokens)
        self._tokens[token] = user, self._clock.now + lasts
        return token

    # -- the door

    def info(self, link: Link) -> ClientInfo:
        if link not in self._infos:
            self._infos[link] = ClientInfo(
                local_host="proxy", local_port=9092, peer_host=link.client.name, peer_port=1, awaits_login=True
            )
        return self._infos[link]

    def take(self, link: Link, frame: bytes, close: Callable[[str], None]) -> bytes | None:
        now = self._clock.now
        if link not in self._sessions:
            self._sessions[link] = SaslSession({"OAUTHBEARER": self._exchange}, self._settings)
        session = self._sessions[link]
        was_in = session.login is not None
        try:
            step = session.take(frame, now, now)
        except RemoteProtocolError as error:
            self._features["a session ends under a request"] += "has ended" in str(error)
            close(str(error))
            return b""
        match step:
            case PassOn():
                return None
            case SaslAnswer(frame=answer):
                if session.login is not None and frames.asked(frame)[0] != _HANDSHAKE:
                    self._features["a session is renewed"] += was_in
                    self.info(link).authenticated(session.principal, session.ends_at)
                return answer
            case SaslEnd(why=why, answer=last):
                self._features["a login is refused"] += 1
                self._clock.later(0.1, lambda: close(why))
                return b"" if last is None else last.frame
            case _:
                raise AssertionError(f"{step}: tokens are checked at once here")

    def _exchange(self, first: bytes) -> Exchange:
        token = first.partition(b"Bearer ")[2].partition(b"\x01")[0]
        user, expires_at = self._tokens[token]
        if expires_at <= self._clock.now:
            raise Refused("the token has expired", user)
        return Login(user, expires_at=expires_at)
        yield


_HANDSHAKE = 17
