"""Handles one client's connection: answers its requests, forwards them to its broker, or both.

Rules:
- The proxy checks a request before it does anything. A request that it does not accept closes the client's connection,
  and so does a bug.
- An API that is not in the table `CARRIED` closes the connection, as an unknown API does on a broker.
- Where ACLs apply, the `Guard` decides over each request first.
- Most requests pass unread. The others have a method each: here, in `AddressHandler`, `ProduceHandler` or
  `TransactionHandler`. While a rule has mode `fan-out`, `OnePartitionHandler` reads some more.
- A client that has not logged in yet gets the versions that upstream offered last: it may open no connection there.
- A client that logs in to upstream itself has the rights that it has there, so no `Guard` decides. In mode `forward`
  the proxy sends its records for rewritten topics as the same user (`ottla.proxy.upstream.principals`).
"""

import logging
import re
import struct
from collections.abc import Callable
from functools import partial
from typing import Protocol

from ottla.client_info import ClientInfo
from ottla.codec.apis import NAMES
from ottla.codec.apis.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse, FinalizedFeatureKey
from ottla.codec.elements import check_elements
from ottla.codec.frames import build_response, parse_request, version_text
from ottla.codec.wire import Buffer
from ottla.errors import RemoteProtocolError, UnsupportedVersion
from ottla.proxy.clients.access.guard import MOST_NAMED, Guard, GuardContext
from ottla.proxy.clients.address_handler import AddressContext, AddressHandler
from ottla.proxy.clients.batches import Origin
from ottla.proxy.clients.carried import (
    ADD_PARTITIONS_TO_TXN,
    API_VERSIONS,
    CARRIED,
    END_TXN,
    FIND_COORDINATOR,
    INIT_PRODUCER_ID,
    METADATA,
    PRODUCE,
    Versions,
    Way,
    offers_feature,
)
from ottla.proxy.clients.client_connection import ClientConnection, ClientRequest
from ottla.proxy.clients.client_link import ClientLink, LinkContext
from ottla.proxy.clients.dialects import UNNAMED, Dialect, dialect_of
from ottla.proxy.clients.offering import AUTHENTICATE, HANDSHAKE, Offering
from ottla.proxy.clients.one_partition_handler import OnePartitionContext, OnePartitionHandler
from ottla.proxy.clients.produce_handler import ProduceContext, ProduceHandler
from ottla.proxy.clients.relay import RelayedLogin
from ottla.proxy.clients.request_line import RequestLine
from ottla.proxy.clients.steps import Steps, run, until
from ottla.proxy.clients.transaction_handler import TransactionContext, TransactionHandler
from ottla.proxy.events import Action
from ottla.proxy.upstream.principals import FirstToken, Principal, Principals, user_of
from ottla.sdk.connection.handshake import OURS, Software

log = logging.getLogger("ottla.proxy")

_SHORT = {PRODUCE: 64 * 2**10, FIND_COORDINATOR: MOST_NAMED, ADD_PARTITIONS_TO_TXN: MOST_NAMED}
"""API key -> a request of at most so many bytes need not be checked against `MOST_NAMED`."""
MOST_READ = 2**20
"""The most bytes of other requests that the proxy parses, or whose response it parses: none has records."""
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
"""The names and versions of software that brokers accept. Source: ApiVersionsRequest.java."""
_LONGEST_SOFTWARE = 100
"""Characters of a client's software and its version that are kept; the client chooses them."""
_HEAD = struct.Struct(">hhi")


class ProxyContext(
    LinkContext, AddressContext, OnePartitionContext, TransactionContext, ProduceContext, GuardContext, Protocol
):
    """The parts of the proxy that all sessions share."""

    actions: list[Action]
    principals: Principals
    offerings: tuple[Offering, ...]
    """Each listener has its own."""
    wall: Callable[[], float] | None
    """Returns the time of day, in seconds since 1970; ``None``: it is unknown."""


class ClientSession:
    """Handles the requests of one client connection.

    Args:
        node: the broker whose port the client uses.
        peer: the client's ``host:port``, for logs.
        listener: the number of the listener.
        info: who the client is.
    """

    def __init__(
        self, shared: ProxyContext, client: int, node: int, peer: str, listener: int, info: ClientInfo
    ) -> None:
        self._shared, self._info = shared, info
        self._client = ClientConnection(client, shared.actions, listener)
        mechanisms = shared.offerings[listener].relayed
        self._link = ClientLink(self._client, node, shared, relayed=bool(mechanisms))
        self._claim = shared.offerings[listener].claim
        """The claim of tokens with the name of the client's user; ``None``: the proxy does not act for the client."""
        accepted = None if self._claim is None else partial(self._logged_in, self._claim)
        self._login: RelayedLogin | None = None
        """The client logs in to upstream itself; ``None``: the proxy speaks for it there."""
        if mechanisms:
            self._login = RelayedLogin(self._client, self._link, mechanisms, accepted, shared.wall)
        self._user: Principal | None = None
        """The user as whom the proxy acts for the client; ``None``: the proxy's, or the client has not logged in."""
        self._addresses = AddressHandler(self._client, self._link, shared)
        self._one_partition = OnePartitionHandler(self._client, peer, self._link, shared)
        self._transactions = TransactionHandler(self._client, Origin(client, peer), self._link, shared)
        self._line = RequestLine(client, shared.buffered)
        self._produce = ProduceHandler(self._client, peer, self._link, self._line, shared)
        self._guard = Guard(self._client, self._link, self._line, info, shared)
        self._dialect: Dialect = UNNAMED

    @property
    def principal(self) -> str:
        """Who the client is."""
        return self._info.principal

    def close(self, why: str) -> None:
        """Close the client's connection."""
        self._client.close(why)

    def left(self, now: float) -> None:
        """Handle the end of the client's connection."""
        if self._user is not None:
            self._shared.principals.left(self._user, self._client.number, now)
        self._link.left(now)
        self._guard.left()
        self._line.in_turn(self._all_handled, 0, now)

    def _all_handled(self, now: float) -> None:
        """Finish, because all requests of a disconnected client are handled."""
        self._link.left(now)  # requests that waited may have opened it again
        self._guard.all_handled()
        self._shared.acceptance.left(self._client.number, now)

    def request(self, ticket: int, frame: Buffer, now: float) -> None:
        """Handle a request frame. An error closes the client's connection."""
        if self._client.closed:  # by an earlier request
            return
        try:
            self._client.requested(ticket)
            self._line.in_turn(partial(self._begin, ticket, frame), len(frame), now)
        except Exception:
            self._client.failed("a request")

    def _begin(self, ticket: int, frame: Buffer, now: float) -> None:
        if self._client.closed:  # while the request waited
            return
        try:
            self._handle(_head(ticket, frame), frame, now)
        except RemoteProtocolError as error:
            self._client.close(str(error))
        except Exception:
            self._client.failed("a request")

    # -- passages

    def begins_passage(self, size: int, start: Buffer) -> bool:
        """Whether to pass on a large request piece by piece; otherwise `request` gets all of it."""
        if len(start) < _HEAD.size or self._client.closed or self._line.held or not self._link.takes_passage:
            return False
        try:
            key, version, _ = _HEAD.unpack_from(start)
            return (
                key == PRODUCE
                and self._offering.why_not(key, version, with_names=self._shared.rules.any_fan_out) is None
                and self._produce.passes(start, size)
                and self._lets_pass(start, size)
            )
        except Exception:  # the whole request will fail in the same way
            log.exception("a bug in the proxy, please report it: the beginning of a request")
            return False

    def _lets_pass(self, start: Buffer, size: int) -> bool:
        """Whether the client may send a Produce request, of which this is the beginning."""
        if self._login is not None:
            return self._login.is_open(self._shared.links.now)
        return self._guard.lets_pass(start, size)

    def begin(self, ticket: int, size: int, start: Buffer, now: float) -> None:
        """Handle the beginning of a request, after `begins_passage`."""
        try:
            request = _head(ticket, start)
            self._client.requested(ticket)
            self._produce.begin(request, size, start, self._dialect, now)
        except Exception:
            self._client.failed("a request")

    def go_on(self, data: Buffer, now: float) -> None:
        """Handle the next piece of a request that has begun."""
        if not self._client.closed:
            try:
                self._produce.go_on(data, now)
            except Exception:
                self._client.failed("a request")

    @property
    def _offering(self) -> Offering:
        return self._shared.offerings[self._client.listener]

    # -- whole requests

    def _handle(self, request: ClientRequest, frame: Buffer, now: float) -> None:
        key = request.key
        if key == API_VERSIONS and not 0 <= request.version <= CARRIED[API_VERSIONS].newest:
            # With more than this entry, franz-go would take them for all that the proxy offers (KIP-511).
            ranges = _ranges({API_VERSIONS: (0, CARRIED[API_VERSIONS].newest)})
            refusal = ApiVersionsResponse(error_code=UnsupportedVersion.code, api_keys=ranges)
            response = build_response(refusal, 0, request.correlation_id)
            self._client.answer(request.ticket, response, errors=(UnsupportedVersion.code,))
            return
        by_name = self._shared.rules.any_fan_out
        if why := self._offering.why_not(key, request.version, with_names=by_name):
            name = NAMES.get(key, f"API key {key}")
            raise RemoteProtocolError(f"{name} {version_text(request.version)} was not offered: {why}")
        _check(key, frame, read=self._one_partition.handles(key))
        if key == API_VERSIONS:
            run(self._api_versions(request, parse_request(frame).message, now), self._client)
        elif self._login is not None:
            self._relay(self._login, request, frame, now)
        else:
            self._guard.screen(request, frame, self._dispatch, now)

    def _relay(self, login: RelayedLogin, request: ClientRequest, frame: Buffer, now: float) -> None:
        """Handle a request of a client whom upstream knows: its rights are upstream's matter.

        In mode `relay` its producers are, too.
        """
        key = request.key
        login.check(key, NAMES[key], now)
        if key == HANDSHAKE and login.done:
            run(self._pass_handshake(login, request, frame), self._client)
        elif key in (HANDSHAKE, AUTHENTICATE):
            login.handle(request, frame, now)
        elif self._claim is None and key in (INIT_PRODUCER_ID, ADD_PARTITIONS_TO_TXN, END_TXN):
            self._link.pass_on(request, frame, now)
        else:
            self._dispatch(request, frame, now)

    def _pass_handshake(self, login: RelayedLogin, request: ClientRequest, frame: Buffer) -> Steps[None]:
        """Pass on the handshake of a client that authenticates again, once its earlier requests are answered.

        Some of these may wait for the login itself: records whose user has no session any more. Then the client's
        connection is closed, and it logs in on a new one.
        """
        first = self._client.first(request.ticket)
        self._line.hold(len(frame))
        if self._user is not None and not first.done:
            self._user.when_awaited(self, partial(self._client.close, "records of its user wait for a new login"))
        yield from until(first)
        if self._user is not None:
            self._user.watch_no_more(self)
        self._line.release(self._shared.links.now, partial(self._handshake, login, request, frame))

    def _handshake(self, login: RelayedLogin, request: ClientRequest, frame: Buffer, now: float) -> None:
        if self._client.gone:
            self._client.answer(request.ticket)
        elif not self._client.closed:
            try:
                login.handle(request, frame, now)
            except RemoteProtocolError as error:
                self._client.close(str(error))
            except Exception:
                self._client.failed("a request")

    def _logged_in(self, claim: str, mechanism: str, token: bytes, ends_at: float) -> None:
        """Act for a client as its user from now on, because upstream has let it in (mode `forward`)."""
        if self._client.gone:
            return
        try:
            sasl = FirstToken(mechanism, user_of(mechanism, token, claim), token)
        except RemoteProtocolError as error:
            self._client.close(str(error))
            return
        user = self._shared.principals.named(sasl.principal)
        if self._user not in (None, user):
            self._client.close("another user has logged in on the connection")
            return
        self._user = user
        self._info.authenticated(user.name, ends_at)
        self._produce.acts_for(user)
        self._transactions.acts_for(user)
        user.logged_in(self._client.number, sasl, ends_at, self._client.close, self._shared.links.now)

    def _dispatch(self, request: ClientRequest, frame: Buffer, now: float) -> None:
        """Handle a request that the client may send."""
        key = request.key
        if key == PRODUCE:
            self._produce.produce(request, frame, self._dialect, now)
        elif self._one_partition.handles(key):
            self._one_partition.handle(request, frame, now)
        elif CARRIED[key].way is Way.ADDRESSED:
            self._addresses.handle(request, frame, now)
        elif key == INIT_PRODUCER_ID:
            run(self._transactions.initialize(request, frame, now), self._client)
        elif key == ADD_PARTITIONS_TO_TXN:
            run(self._transactions.add_partitions(request, frame, now), self._client)
        elif key == END_TXN:
            run(self._transactions.end(request, frame, now), self._client)
        else:
            self._link.pass_on(request, frame, now)

    def _api_versions(self, request: ClientRequest, asked: ApiVersionsRequest, now: float) -> Steps[None]:
        """Answer with the versions and features that upstream and the proxy both have."""
        name, version = asked.client_software_name, asked.client_software_version
        self._dialect = dialect_of(name, version)
        self._guard.speaks(self._dialect)
        self._produce.runs(f"{name} {version}".strip()[:_LONGEST_SOFTWARE])
        named = _SOFTWARE.fullmatch(name) and _SOFTWARE.fullmatch(version)
        software = Software(name, version) if named else OURS
        stranger = self._info.awaits_login if self._login is None else not self._login.done
        recalled = self._link.recalled(software) if stranger else None
        if recalled is None:
            recalled = yield from self._link.offered(software, now)
        upstream, features = recalled
        versions = self._offering.of(upstream, with_names=self._shared.rules.any_fan_out)
        answer = ApiVersionsResponse(
            error_code=0,
            api_keys=_ranges(versions),
            finalized_features_epoch=features.epoch,
            finalized_features=tuple(
                FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
                for name, level in features.levels.items()
                if offers_feature(name, versions)
            ),
        )
        self._client.respond(request, answer)


def _head(ticket: int, frame: Buffer) -> ClientRequest:
    """Read the head of a request.

    Raises:
        RemoteProtocolError: the frame is too short.
    """
    if len(frame) < _HEAD.size:
        raise RemoteProtocolError(f"a frame of {len(frame)} bytes: this is not Kafka's protocol")
    return ClientRequest(ticket, *_HEAD.unpack_from(frame))


def _check(key: int, frame: Buffer, *, read: bool) -> None:
    """Check that a request is not larger than its kind may be.

    Args:
        read: it is parsed, although other requests of its API pass unread.

    Raises:
        RemoteProtocolError: it is.
    """
    size = len(frame)
    if key not in CARRIED:  # it belongs to a login
        return
    if size > MOST_READ and (read or CARRIED[key].way is not Way.OPAQUE) and key not in (PRODUCE, METADATA):
        raise RemoteProtocolError(f"{CARRIED[key].name} of {size} bytes; the proxy accepts at most {MOST_READ}")
    if size > _SHORT.get(key, 0 if read else size):
        check_elements(frame, MOST_NAMED)


def _ranges(versions: Versions) -> tuple[ApiVersion, ...]:
    return tuple(ApiVersion(api_key=key, min_version=low, max_version=high) for key, (low, high) in versions.items())
