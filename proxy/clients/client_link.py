"""The upstream connection of one client.

Rules:
- Each client connection has its own upstream connection, to the broker whose port it uses, opened on demand. If that is
  lost while a response is due, the client's connection is closed, as the broker itself would have done. It is closed,
  too, if it has carried records with ``acks=0``: to close the connection is a broker's only way to refuse them.
- While no broker answers the proxy, unsent requests wait, for up to ``delivery-timeout``, and the proxy answers
  ApiVersions with the versions that the broker offered last. So clients that connect meanwhile wait, too: most would
  take a closed connection for a broker that they cannot talk to. If only this client's broker does not answer, or
  upstream does not name it any more, the proxy closes the connection, and the client goes to another broker.
- A broker may come back with other versions than the client knows. Upstream judges the client's requests: a version
  that the broker does not serve closes the connection, and the client asks for the versions again.
- A client that logs in to upstream itself (mode `relay`) has one upstream connection for all of its life: a second
  one would have no login. So its own connection is closed with it, whatever waits.
- A client that disconnects does not cancel its requests: the upstream connection stays open until upstream has read all
  of them. A request that it has not sent to its end is lost.
"""

from collections.abc import Callable
from functools import partial
from typing import Protocol

from ottla.codec.wire import Buffer
from ottla.errors import ConnectionLost, NotEnoughReplicas, OttlaError, TimeoutExpired
from ottla.proxy.clients.buffered import Buffered
from ottla.proxy.clients.carried import Versions
from ottla.proxy.clients.client_connection import ClientConnection, ClientRequest
from ottla.proxy.clients.steps import Steps, UpstreamAnswer, UpstreamFrame, until
from ottla.proxy.config import ProxyConfig
from ottla.proxy.events import Address
from ottla.proxy.upstream.cluster import UpstreamCluster
from ottla.proxy.upstream.control import Control
from ottla.proxy.upstream.link import Parts, Passed, UpstreamLink, UpstreamLinks
from ottla.sdk.connection.handshake import OURS, Features, Software
from ottla.sdk.outcome import Outcome
from ottla.sdk.timers import Timer, Timers

ANSWER_TIMEOUT = 900.0
"""Seconds that a response to a client may take; joining a group takes as long as its slowest member."""

Offered = tuple[Versions, Features]
"""The API versions and the finalized features that a broker offers."""
Lost = Callable[[float], None]
"""Called with the current time if a request will have no response."""


def _ignore(now: float) -> None:
    """Do nothing: nobody waits for the response beside the client."""


class LinkContext(Protocol):
    """The parts of the proxy that clients' upstream connections use."""

    config: ProxyConfig
    timers: Timers
    links: UpstreamLinks
    cluster: UpstreamCluster
    control: Control
    buffered: Buffered

    def dropped(self, why: str, size: int, now: float) -> None:
        """Log that ``size`` bytes of requests of a disconnected client were dropped."""


class ClientLink:
    """Forwards the requests of one client to its broker; they wait until the connection is ready.

    Args:
        node: the broker whose port the client uses.
        relayed: the client logs in to upstream itself.
    """

    def __init__(self, client: ClientConnection, node: int, shared: LinkContext, *, relayed: bool = False) -> None:
        self._client, self.node, self._shared, self._relayed = client, node, shared, relayed
        self._link: UpstreamLink | None = None
        self._offered: Offered = {}, Features()
        self._software = OURS
        self._waiting: list[tuple[Callable[[UpstreamLink], None], int, Lost]] = []
        """Calls that wait for the link, the bytes of their requests, and what to call if they are dropped."""
        self._asking: list[Outcome[None]] = []
        """Settled once it is known what upstream offers."""
        self._outage: Timer | None = None
        """Set while requests wait until upstream answers again; gives them up when it is due."""
        self._carries_unanswered = False
        """The link has carried requests without a response (``acks=0``)."""

    # -- requests

    def ask(self, frame: Buffer, now: float) -> UpstreamFrame:
        """Forward a request at once; the steps wait for the frame of its response, and return it with the time."""
        answer = UpstreamAnswer()
        self.forward(frame, lambda parts, now: answer.succeed((b"".join(parts), now)), now)
        return until(answer)

    def forward(
        self,
        frame: Buffer,
        arrived: Callable[[Parts, float], None] | None,
        now: float,
        passed: Passed | None = None,
        size: int = 0,
        lost: Lost = _ignore,
    ) -> None:
        """Forward a request, and call ``arrived`` with the frame of the response, in parts.

        Args:
            arrived: ``None`` for a request without a response (Produce with ``acks=0``).
            passed: gets the pieces of a large response instead.
            size: of the whole request, if `go_on` brings the rest; the link `takes_passage`.
            lost: called instead of ``arrived`` if there will be no response; the client's connection is closed then,
                unless it has left.
        """
        failed = self._client.contained(partial(self._unanswered, lost))

        def send(link: UpstreamLink) -> None:
            self._carries_unanswered = self._carries_unanswered or arrived is None
            deadline = now + ANSWER_TIMEOUT
            link.forward(frame, deadline=deadline, arrived=arrived, failed=failed, passed=passed, size=size)

        self._with_link(send, now, len(frame), lost)

    def pass_on(self, request: ClientRequest, frame: Buffer, now: float) -> None:
        """Forward a request, and answer with upstream's response, unread."""
        pieces = self._client.takes_pieces(request.ticket)
        passed = partial(self._client.stream_back, request) if pieces else None
        self.forward(frame, partial(self._client.pass_back, request), now, passed)

    @property
    def now(self) -> float:
        """The time of the last event."""
        return self._shared.links.now

    @property
    def takes_passage(self) -> bool:
        """Whether a request can be forwarded piece by piece now."""
        return self._link is not None and self._link.takes_passage

    def go_on(self, piece: Buffer, now: float) -> None:
        """Forward the next piece of the request that has begun, unless its link is lost, which closes the client."""
        if self._link is not None:
            self._link.go_on(piece, now + ANSWER_TIMEOUT)

    def _unanswered(self, lost: Lost, error: OttlaError, now: float) -> None:
        self._client.close(str(error))
        lost(now)

    def _with_link(self, then: Callable[[UpstreamLink], None], now: float, size: int, lost: Lost) -> None:
        """Call ``then`` once the link is ready; until then ``size`` bytes count as buffered."""
        if self._link is not None and self._link.ready:
            then(self._link)
            return
        if self._shared.control.unavailable:
            try:
                self._shared.buffered.check_room(self._client.number, size)
            except NotEnoughReplicas as full:
                self._client.close(full.detail)
                lost(now)
                return
        self._waiting.append((then, size, lost))
        self._shared.buffered.count(self._client.number, size)
        self._open_link(now)

    def _take_waiting(self) -> list[Callable[[UpstreamLink], None]]:
        waiting, self._waiting = self._waiting, []
        self._shared.buffered.count(self._client.number, -sum(size for _, size, _ in waiting))
        return [then for then, _, _ in waiting]

    def check_cluster(self, then: Lost, now: float) -> None:
        """Go on if the broker still belongs to upstream; otherwise the client's connection is closed."""
        assert self._link is not None, "the client has just logged in on it"
        deadline = now + self._shared.config.connect_timeout
        self._link.check_cluster(self._client.contained(then), deadline, now)

    # -- what upstream offers

    def offered(self, software: Software, now: float) -> Steps[Offered]:
        """Wait for the versions and features that upstream offers; during an outage, return the last ones.

        Args:
            software: of the client. Upstream learns it, unless the link is open already.
        """
        self._software = software
        ready = self._link is not None and self._link.ready
        if not ready and not (self._shared.control.unavailable and self._recall()):
            known: Outcome[None] = Outcome()
            self._asking.append(known)
            self._open_link(now)
            yield from until(known)
        return self._offered

    def newest(self, key: int) -> int:
        """The newest version of an API that upstream offers, as far as that is known; -1 if it does not."""
        if not self._offered[0]:
            self._recall()
        return self._offered[0].get(key, (0, -1))[1]

    def recalled(self, software: Software) -> Offered | None:
        """What upstream offered last; ``None`` if that is unknown. It opens no connection.

        Args:
            software: of the client, for upstream, when there is a connection.
        """
        self._software = software
        return self._offered if self._recall() else None

    def _recall(self) -> bool:
        """Take what upstream offered last; returns whether it is known."""
        offer = self._shared.links.offer_of(self._address)
        if offer is not None:
            self._offered = offer
        return offer is not None

    def _tell_asking(self) -> None:
        asking, self._asking = self._asking, []
        for known in asking:
            known.succeed(None)

    # -- the link

    def _open_link(self, now: float) -> None:
        """Connect to the broker, unless the link is open, or waits until upstream answers."""
        if self._link is None and self._outage is None:
            self._connect(now)

    def _connect(self, now: float) -> None:
        if self._address is None:
            self._give_up(f"upstream does not name node {self.node} any more", now)
            return
        lost = self._client.contained(self._lost)
        connect = self._shared.links.relay if self._relayed else self._shared.links.connect
        self._link = connect(
            self._address, now, ready=self._ready, lost=lost, client=self._client.number, software=self._software
        )

    @property
    def _address(self) -> Address | None:
        """The broker's address; ``None`` if upstream does not name it any more."""
        return self._shared.cluster.nodes.get(self.node)

    def _ready(self, now: float) -> None:
        assert self._link is not None, "only an open link becomes ready"
        self._end_outage()
        self._offered = self._link.versions, self._link.features
        self._tell_asking()
        for then in self._take_waiting():
            then(self._link)
        self._finish_if_done()

    def _lost(self, error: OttlaError, now: float) -> None:
        unsent, self._link = self._link.unsent if self._link else 0, None
        if self._relayed:
            self._client.close(str(error))
            self._drop_waiting(str(error), now, unsent)
            return
        if not (self._waiting or self._asking or self._carries_unanswered or self._client.gone):
            return
        passing = isinstance(error, (ConnectionLost, TimeoutExpired)) and self._shared.control.unavailable
        if passing and not (self._carries_unanswered or self._client.gone or self._client.closed):
            self._await_upstream(error, now)
        else:
            self._client.close(str(error))
            self._drop_waiting(str(error), now, unsent)

    # -- an outage

    def _await_upstream(self, error: OttlaError, now: float) -> None:
        """Keep the waiting requests until a broker answers, or for ``delivery-timeout``."""
        if self._asking and self._recall():
            self._tell_asking()
        if self._waiting or self._asking:
            if self._outage is None:
                give_up = self._client.contained(partial(self._give_up, str(error)))
                self._outage = self._shared.timers.add(now + self._shared.config.delivery_timeout, give_up)
            self._shared.control.when_answered(self, self._client.contained(self._connect))

    def _give_up(self, why: str, now: float) -> None:
        """Close the connection of a client whose requests have waited for too long."""
        self._client.close(why)
        self._drop_waiting(why, now)

    def _end_outage(self) -> None:
        if self._outage is not None:
            self._outage.cancel()
            self._outage = None
            self._shared.control.withdraw(self)

    def _drop_waiting(self, why: str, now: float, unsent: int = 0) -> None:
        """Drop the waiting requests, and log how many bytes a disconnected client loses; ``unsent``: its link's."""
        self._end_outage()
        if self._client.gone and (size := unsent + sum(size for _, size, _ in self._waiting)):
            self._shared.dropped(why, size, now)
        dropped = [lost for _, _, lost in self._waiting]
        self._take_waiting()
        self._asking.clear()
        for lost in dropped:
            lost(now)

    # -- the end

    def left(self, now: float) -> None:
        """Handle the end of the client's connection."""
        self._client.left(self._finish_if_done)
        if self._outage is not None and self._link is None:
            self._drop_waiting("upstream is unavailable", now)
        if self._link is not None:
            self._link.break_off(now)
        self._finish_if_done()
        if self._link is not None:
            self._link.linger(now)

    def _finish_if_done(self) -> None:
        """Finish the upstream connection once all requests of a disconnected client are handled."""
        if self._client.done and not self._waiting and self._link is not None:
            self._link.finish(self._shared.links.now)
