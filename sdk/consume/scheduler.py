"""Which node is asked for which partitions, when, and for how much.

Rules:
- One Fetch per node is under way at a time; it asks for the partitions there that have room in their buffer
  (`Session`). While it is, partitions in which the user has sought are asked for by another, once, on a connection of
  its own: the first may be held back at the broker for `fetch_max_wait`.
- Nodes share the room in the buffers, and take no more of it than what they are asked for can bring; partitions share
  it too but may always have one answer: everybody gets on. So may what was sought, without room as well.
- A batch that came cut is asked for once there is room for all of it, or all of the room is free.
- A near replica is read from where the leader recommends it (KIP-392); after any error there it is the leader's turn
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
from ottla.sdk.consume.buffers import FetchBuffers
from ottla.sdk.consume.near import WITHOUT_REPLICAS, NearReplicas
from ottla.sdk.consume.positions import NO_NODE, Position
from ottla.sdk.consume.sessions import Limits, Session
from ottla.sdk.core import ClientCore
from ottla.sdk.events import Node

_BRIEFLY = 0.02
"""Seconds for which a broker may hold a Fetch back, at least, while partitions wait until their buffers have room."""


class FetchScheduler:
    """The fetch sessions of one fetcher.

    Args:
        channel: of its connections.
        answered: called with each session whose Fetch has ended, the answer, and the time.
    """

    def __init__(
        self,
        core: ClientCore,
        buffers: FetchBuffers,
        near: NearReplicas,
        channel: str,
        isolation: int,
        answered: Callable[[Session, FetchResponse | OttlaError, float], None],
    ) -> None:
        self._core, self._buffers, self._near, self._isolation = core, buffers, near, isolation
        self._channel, self._priority = channel, f"{channel}-priority"
        self._answered = answered
        self._sessions: dict[tuple[int, bool], Session] = {}
        """By node, and whether it is the one for what cannot wait."""
        self._full: dict[Position, None] = {}
        """Partitions that are not fetched because their buffer has no room."""
        self.short = False
        """Some node is not asked, for want of room in the buffers."""
        self._taken_at = -math.inf
        """When the user took something last."""
        self._closed = False

    # -- what to ask for ----------------------------------------------------------------------------------------------

    def want(self, position: Position, leader: Node, partitions: int, now: float) -> None:
        """Have the partition, one of so many, fetched from the node it is to be read from, if its buffer has room."""
        if not self._buffers.wants(position, partitions):
            self.leave(position)
            if not position.paused and position.fetch_offset < position.end:
                self._full[position] = None
            return
        self._full.pop(position, None)
        node = self._source(position, leader, now)
        usual = self._sessions.get((node.id, False))
        priority = position.priority and usual is not None and usual.under_way
        if (position.node, position.priority) != (node.id, priority):
            self.leave(position)
        position.priority = priority
        session = self._sessions.get((node.id, priority))
        if session is None:
            session = self._sessions[node.id, priority] = Session(node, priority)
        session.node, position.node = node, node.id
        session.want(position)

    def leave(self, position: Position) -> None:
        """Have the partition fetched no more; an answer that is under way still counts."""
        self._full.pop(position, None)
        if session := self._sessions.get((position.node, position.priority)):
            session.drop(position)
        position.node = NO_NODE

    def ended_priority(self, session: Session) -> Iterator[Position]:
        """The partitions that were asked for out of turn, once, and go on with the others now."""
        for position in list(session.wanted.values()):
            asked = session.known.get(position.place)
            if asked is None or asked.seeks != position.seeks:
                continue  # was sought since, and is still to be asked for
            self.leave(position)
            position.priority = False
            yield position

    def taken(self, position: Position) -> bool:
        """The user has taken something of the partition; whether that may be what a Fetch waits for."""
        self._taken_at = self._core.now
        return position.node == NO_NODE or self.short

    def _source(self, position: Position, leader: Node, now: float) -> Node:
        """The node to read from: the leader, or for a while the replica that it recommends."""
        replica = self._core.cluster.nodes.get(position.replica)
        if replica is None or now >= position.replica_until or replica.id not in self._near:
            position.replica = NO_NODE
            return leader
        return replica

    # -- asking -------------------------------------------------------------------------------------------------------

    def fetch(self, now: float) -> None:
        """Ask every node where something is wanted and nothing is under way."""
        options = self._core.options
        busy = [each for each in self._sessions.values() if each.wanted]
        # Where room is short, it goes to what was sought, then to what has waited longest.
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
                return  # until the user takes something
            most = session.most(min(options.fetch_max_bytes, share, free), options.partition_max_bytes)
            self._ask(session, max(most, session.needs), self._wait(session, now), now)

    def _wait(self, session: Session, now: float) -> float:
        """Seconds for which the broker may hold the Fetch back.

        A partition whose buffer is full is not asked for, and will wait behind this Fetch once it has room: for no
        longer than the user has already taken nothing.
        """
        if session.priority:
            return 0.0
        wait = self._core.options.fetch_max_wait
        return min(max(_BRIEFLY, now - self._taken_at), wait) if self._full else wait

    def _ask(self, session: Session, max_bytes: int, wait: float, now: float) -> None:
        options = self._core.options
        limits = Limits(wait, max_bytes, options.partition_max_bytes, self._isolation, options.rack or "")
        session.under_way, session.since, session.reserved = True, now, max_bytes

        channel = self._priority if session.priority else self._channel
        patience = self._near.wait_for(session.node, session.wanted.values(), channel, wait, now)

        def ended(answer: FetchResponse | OttlaError, now: float) -> None:
            if patience is not None:
                patience.cancel()
            session.under_way = False
            if not self._closed:
                self._answered(session, answer, now)
            session.reserved = 0

        deadline = now + wait + options.request_timeout
        build, versions = partial(session.request, limits), self._versions(session, now)
        exchange = Exchange(FetchRequest, ended, deadline, build=build, versions=versions)
        self._core.submit(session.node, exchange, now, channel)

    def _versions(self, session: Session, now: float) -> tuple[int, int] | None:
        """The versions that will do; those in which a leader cannot redirect, if it would to a replica in trouble."""
        if self._near.may_redirect(session.node.id, now):
            spoken = self._core.supports(session.node, FetchRequest)
            if spoken and spoken[0] <= WITHOUT_REPLICAS:
                return (0, WITHOUT_REPLICAS)
        return session.versions

    # -- the end ------------------------------------------------------------------------------------------------------

    def explain(self, now: float) -> Iterator[str]:
        """Nodes that owe an answer for longer than they may hold it back."""
        for session in self._sessions.values():
            waited = now - session.since
            if session.under_way and waited > self._core.options.fetch_max_wait + 1:
                node = f"{format_address(session.node.host, session.node.port)} (node {session.node.id})"
                yield f"{node}: no answer for {waited:.1f} s to a Fetch of {len(session.wanted)} partition(s)"

    def close(self) -> None:
        """Ask for nothing any more."""
        self._closed = True
        for channel in (self._channel, self._priority):
            self._core.retire(channel)
        sessions, self._sessions = self._sessions, {}
        self._core.soon(partial(self._close_sessions, sessions.values()))

    def _close_sessions(self, sessions: Any, now: float) -> None:
        """Give the brokers' memory back, where that costs nothing and delays nothing: they keep sessions for long.

        On the ordinary channel, for on the fetcher's own a Fetch may wait.
        """
        for session in sessions:
            last = session.closing_request()
            if last is not None and self._core.connected(session.node):
                exchange = Exchange(last, lambda answer, now: None, now + self._core.options.request_timeout)
                self._core.submit(session.node, exchange, now)
