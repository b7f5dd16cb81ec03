"""What a partition needs after something happened to it: to be asked about, or to be fetched.

A partition's new leader is asked whether it has what was read (KIP-320), before more is fetched.

Source: SubscriptionState.java, OffsetFetcher.java.
"""

from collections.abc import Iterable

from ottla.codec.wire import NO_UUID
from ottla.sdk.consume.assigned import Positions
from ottla.sdk.consume.position_lookups import PositionLookups
from ottla.sdk.consume.positions import Position, State
from ottla.sdk.consume.scheduler import FetchScheduler
from ottla.sdk.core import ClientCore
from ottla.sdk.events import Node


class Review:
    """Of one fetcher, whose parts are given."""

    def __init__(
        self, core: ClientCore, positions: Positions, lookups: PositionLookups, scheduler: FetchScheduler
    ) -> None:
        self._core, self._positions, self._lookups, self._scheduler = core, positions, lookups, scheduler

    def review(self, changed: Iterable[Position], now: float) -> None:
        """Ask leaders about those partitions that need it, and for records of all that are wanted."""
        to_resolve: dict[Node, list[Position]] = {}
        to_validate: dict[Node, list[Position]] = {}
        for position in changed:
            if position.state is State.FAILED or position.retry_at > now or position.asking:
                continue
            leader = self._core.cluster.leader(*position.place)
            if leader is None:
                position.led = None
                self._core.metadata.refresh(
                    now, 0.0 if position.failures == 0 else self._core.options.retry_backoff_max
                )
                self._positions.retry([position], self._core.metadata.why_no_leader(*position.place), now)
                continue
            if position.led is None:
                position.recovered()
            position.led = self._positions.leader(position)
            if position.state is State.FETCHING:
                self._schedule(position, leader, now)
            if position.state is State.RESOLVING:
                to_resolve.setdefault(leader, []).append(position)
            elif position.state is State.VALIDATING:
                to_validate.setdefault(leader, []).append(position)
        for node, positions in to_resolve.items():
            self._lookups.resolve(node, positions, now)
        for node, positions in to_validate.items():
            self._lookups.validate(node, positions, now)
        self._scheduler.fetch(now)

    def _schedule(self, position: Position, leader: Node, now: float) -> None:
        """Have the partition fetched, or have its position looked at first."""
        topic_id = self._core.cluster.topic_id(position.place[0])
        if topic_id != NO_UUID:
            if position.topic_id not in (topic_id, NO_UUID):
                self._positions.recreated(position)
                return
            position.topic_id = topic_id
        leader_epoch = self._positions.leader_epoch(position)
        if leader_epoch > position.leader_epoch and position.fetch_epoch >= 0:
            position.state = State.VALIDATING
            self._scheduler.leave(position)
            return
        position.leader_epoch = max(position.leader_epoch, leader_epoch)
        self._scheduler.want(position, leader, len(self._positions.assigned), now)
