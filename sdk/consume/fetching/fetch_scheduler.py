"""Decides which node is asked for which partitions, when, and for how many bytes.

Rules:
- One Fetch per node is in flight at a time, for the node's partitions that have room in their buffers (`FetchSession`).
  If the user seeks meanwhile, the partition is fetched once by a second Fetch on its own connection, because the broker
  may hold back the first one for `fetch_max_wait`.
- Nodes share the room in the buffers, and reserve no more than their response can return. Partitions share it as well,
  but each may always buffer one response, so that all make progress. After a seek, a Fetch does not need free room.
- A truncated batch is fetched again once there is room for all of it, or once all buffers are empty.
- A near replica is read if the leader recommends it (KIP-392); after any error there, the leader is read
  (`NearReplicas`).

Source: AbstractFetch.java.
"""

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from ottla.addresses import format_address
from ottla.codec.apis.fetch import FetchRequest, FetchResponse
from ottla.errors import OttlaError
from ottla.sdk.connection.exchange import Exchange
from ottla.sdk.consume.fetching.fetch_buffers import FetchBuffers
from ottla.sdk.consume.fetching.fetch_session import FetchLimits, FetchSession
from ottla.sdk.consume.fetching.near_replicas import WITHOUT_REPLICAS, NearReplicas
from ottla.sdk.consume.partitions.position import NO_NODE, Position
from ottla.sdk.core import ClientCore
from ottla.sdk.events import Node

_BRIEFLY = 0.02
"""Minimum time in seconds that a broker may hold back a Fetch while partitions wait for room in their buffers."""


class FetchScheduler:
    """Schedules the Fetch requests of one fetcher.

    Args:
        channel: the channel of the fetcher's connections.
        answered: called with the session, the response and the time when a Fetch has ended.
    """

    def __init__(
        self,
        core: ClientCore,
        buffers: FetchBuffers,
        near: NearReplicas,
        channel: str,
        isolation: int,
        answered: Callable[[FetchSession, FetchResponse | OttlaError, float], None],
    ) -> None:
        self._core, self._buffers, self._near, self._isolation = core, buffers, near, isolation
        self._channel, self._priority = channel, f"{channel}-priority"
        self._answered = answered
        self._sessions: dict[tuple[int, bool], FetchSession] = {}
        """By node, and by whether the session is the one for sought partitions."""
        self._fetching: dict[Position, FetchSession] = {}
        """The session in which each partition is fetched."""
        self._sought: dict[Position, None] = {}
        """Partitions that the user sought, so that their first Fetch must not wait until the broker answers an earlier
        one; until they are fetched with the others."""
        self._full: dict[Position, None] = {}
        """Partitions that are not fetched because their buffers are full."""
        self.short = False
        """A node is not asked because the buffers have no room."""
        self._taken_at = -math.inf
        """When the user last took a batch."""
        self._closed = False

    # -- partitions ---------------------------------------------------------------------------------------------------

    def want(self, position: Position, leader: Node, partitions: int, now: float) -> None:
        """Fetch the partition from its leader or near replica, if there is room in its buffer.

        Args:
            partitions: the number of partitions that share the buffers.
        """
        if not self._buffers.wants(position, partitions):
            self.leave(position)
            if position not in self._buffers.paused and position.fetch_offset < position.end:
                self._full[position] = None
            return
        self._full.pop(position, None)
        node = self._source(position, leader, now)
        usual = self._sessions.get((node.id, False))
        priority = position in self._sought and usual is not None and usual.under_way
        if not priority:
            self._sought.pop(position, None)
        session = self._sessions.get((node.id, priority))
        if session is None:
            session = self._sessions[node.id, priority] = FetchSession(node, priority)
        if self._fetching.get(position) is not session:
            self.leave(position)
        self._fetching[position] = session
        session.want(position, node)

    def leave(self, position: Position) -> None:
        """Stop fetching the partition; a response in flight still counts."""
        self._full.pop(position, None)
        if (session := self._fetching.pop(position, None)) is not None:
            session.drop(position)

    def sought(self, position: Position) -> None:
        """Let the next Fetch of the partition not wait for an earlier one: the user sought there."""
        self._sought[position] = None

    def forget(self, position: Position) -> None:
        """Stop fetching a partition that is no longer assigned."""
        self.leave(position)
        self._sought.pop(position, None)

    def node(self, position: Position) -> int:
        """The node that is asked for records of the partition; `NO_NODE`: none."""
        session = self._fetching.get(position)
        return NO_NODE if session is None else session.node.id

    def ended_priority(self, session: FetchSession) -> Iterator[Position]:
        """The partitions of a priority Fetch that has ended; from now on they are fetched with the others."""
        for position in list(session.wanted.values()):
            asked = session.known.get(position.place)
            if asked is None or asked.seeks != position.seeks:
                continue  # sought again since, and not requested yet
            self.forget(position)
            yield position

    def taken(self, position: Position) -> bool:
        """Take note that the user took a batch of the partition; return whether that may allow a new Fetch."""
        self._taken_at = self._core.now
        return position not in self._fetching or self.short

    def _source(self, position: Position, leader: Node, now: float) -> Node:
        """The node to read from: the leader, or for a limited time the replica that it recommends."""
        replica = self._core.cluster.nodes.get(position.replica)
        if replica is None or now >= position.replica_until or replica.id not in self._near:
            position.read_from_leader()
            return leader
        return replica

    # -- requests -----------------------------------------------------------------------------------------------------

    def fetch(self, now: float) -> None:
        """Send a Fetch to each node that has wanted partitions and no Fetch in flight."""
        options = self._core.options
        busy = [each for each in self._sessions.values() if each.wanted]
        # If there is not enough room for all, sought partitions come first, then nodes that have waited longest.
        for session in sorted(busy, key=lambda each: (not each.priority, each.since)):
            if session.under_way or session.retry_at > now:
                continue
            share = options.fetch_buffer_bytes // len(busy)
            least = max(session.needs, min(options.partition_max_bytes, share))
            free = self._buffers.room(least, sum(each.reserved for each in self._sessions.values()))
            if session.priority:
                free = max(free, options.partition_max_bytes)
            self.short = free <= 0
            if self.short:
                return  # wait until the user takes a batch
            most = session.most(min(options.fetch_max_bytes, share, free), options.partition_max_bytes)
            self._ask(session, max(most, session.needs), self._wait(session, now), now)

    def _wait(self, session: FetchSession, now: float) -> float:
        """Seconds for which the broker may hold back the Fetch.

        A partition with a full buffer is not in this Fetch, and once it has room it has to wait for the Fetch to end.
        So the Fetch is held back no longer than the user has already taken no batch.
        """
        if session.priority:
            return 0.0
        wait = self._core.options.fetch_max_wait
        return min(max(_BRIEFLY, now - self._taken_at), wait) if self._full else wait

    def _ask(self, session: FetchSession, max_bytes: int, wait: float, now: float) -> None:
        options = self._core.options
        limits = FetchLimits(wait, max_bytes, options.partition_max_bytes, self._isolation, options.rack or "")
        session.begin(max_bytes, now)
        channel = self._priority if session.priority else self._channel
        delays = self._near.wait_for(session.node, session.wanted.values(), channel, wait, now)

        def ended(answer: FetchResponse | OttlaError, now: float) -> None:
            if delays is not None:
                delays.cancel()
            if not self._closed:
                self._answered(session, answer, now)
            session.end()

        deadline = now + wait + options.request_timeout
        build, versions = partial(session.request, limits), self._versions(session, now)
        exchange = Exchange(FetchRequest, ended, deadline, build=build, versions=versions)
        self._core.submit(session.node, exchange, now, channel)

    def _versions(self, session: FetchSession, now: float) -> tuple[int, int] | None:
        """The versions that can be used: without recommendations if the leader might recommend a failing replica."""
        if self._near.may_redirect(session.node.id, now):
            spoken = self._core.supports(session.node, FetchRequest)
            if spoken and spoken[0] <= WITHOUT_REPLICAS:
                return (0, WITHOUT_REPLICAS)
        return session.versions

    # -- explaining and closing ---------------------------------------------------------------------------------------

    def explain(self, now: float) -> Iterator[str]:
        """Lines for people about nodes that have not answered a Fetch in time."""
        for session in self._sessions.values():
            waited = now - session.since
            if session.under_way and waited > self._core.options.fetch_max_wait + 1:
                node = f"{format_address(session.node.host, session.node.port)} (node {session.node.id})"
                yield f"{node}: no answer for {waited:.1f} s to a Fetch of {len(session.wanted)} partition(s)"

    def close(self) -> None:
        """Stop fetching, and close the sessions."""
        self._closed = True
        for channel in (self._channel, self._priority):
            self._core.retire(channel)
        sessions, self._sessions = self._sessions, {}
        self._core.soon(partial(self._close_sessions, sessions.values()))

    def _close_sessions(self, sessions: Any, now: float) -> None:
        """Close the sessions at connected brokers, which would otherwise keep them in memory for long.

        This uses the ordinary channel, because the broker may hold back a Fetch on the fetcher's own.
        """
        for session in sessions:
            last = session.closing_request()
            if last is not None and self._core.connected(session.node):
                exchange = Exchange(last, lambda answer, now: None, now + self._core.options.request_timeout)
                self._core.submit(session.node, exchange, now)
