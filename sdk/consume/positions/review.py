"""Decides what each changed partition needs: a lookup, a validation, or a Fetch.

Before fetching from a partition's new leader, the client asks the leader whether its log matches the records that were
read (KIP-320). It does the same if the topic may have been recreated: without topic ids, if it was missing for a time
or its leader epochs fell.

Source: SubscriptionState.java, OffsetFetcher.java.
"""

from collections.abc import Iterable

from ottla.sdk.consume.fetching.fetch_scheduler import FetchScheduler
from ottla.sdk.consume.partitions.position import Led, Position, PositionState
from ottla.sdk.consume.positions.assigned_positions import AssignedPositions
from ottla.sdk.consume.positions.position_lookups import PositionLookups
from ottla.sdk.core import ClientCore
from ottla.sdk.events import Node


class Review:
    """Reviews the partitions of one fetcher."""

    def __init__(
        self, core: ClientCore, positions: AssignedPositions, lookups: PositionLookups, scheduler: FetchScheduler
    ) -> None:
        self._core, self._positions, self._lookups, self._scheduler = core, positions, lookups, scheduler

    def review(self, changed: Iterable[Position], now: float) -> None:
        """Send lookups for the changed partitions that need them, and Fetch requests to all free nodes."""
        to_resolve: dict[Node, list[Position]] = {}
        to_validate: dict[Node, list[Position]] = {}
        for position in changed:
            if position.state is PositionState.FAILED or position.retry_at > now or position.asking:
                continue
            led = self._positions.leader(position)
            if led is None:
                position.led_by(None)
                self._core.metadata.refresh(
                    now, 0.0 if position.failures == 0 else self._core.options.retry_backoff_max
                )
                self._positions.retry([position], self._core.metadata.why_no_leader(*position.place), now)
                continue
            position.led_by(led)
            leader = self._core.cluster.nodes[led.node]
            if position.state is PositionState.FETCHING:
                self._schedule(position, leader, led, now)
            if position.state is PositionState.RESOLVING:
                if position.adopt(led.topic_id):
                    to_resolve.setdefault(leader, []).append(position)
                else:
                    self._positions.recreated_unread(position)
            elif position.state is PositionState.VALIDATING:
                to_validate.setdefault(leader, []).append(position)
        for node, positions in to_resolve.items():
            self._lookups.resolve(node, positions, now)
        for node, positions in to_validate.items():
            self._lookups.validate(node, positions, now)
        self._scheduler.fetch(now)

    def _schedule(self, position: Position, leader: Node, led: Led, now: float) -> None:
        """Fetch the partition, or validate its position first."""
        if not position.adopt(led.topic_id):
            self._positions.recreated(position)
        elif position.follow(led):
            self._scheduler.want(position, leader, len(self._positions.assigned), now)
        else:
            self._scheduler.leave(position)
