"""Asks leaders at which offset to start, and whether a new leader's log matches the records that were read (KIP-320).

Each node gets one request of each kind, for all of its partitions. After a seek, older responses are ignored.

Rules:
- Before the lookup of a timestamp, the client requests the end of the log. If no record has that timestamp or a later
  one, reading starts at this end, so a record that arrives between the two requests is read. With the end requested
  afterwards, the record would be skipped.
- The end is valid only for the leader that returned it: a new leader, or a recreated topic, may have a shorter log.

Source: OffsetFetcher.java, OffsetsForLeaderEpochUtils.java.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from ottla.codec.apis.list_offsets import (
    EARLIEST,
    LATEST,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
)
from ottla.codec.apis.offset_for_leader_epoch import EpochEndOffset, OffsetForLeaderEpochResponse
from ottla.errors import OttlaError, RemoteProtocolError, UnsupportedVersion, broker_error
from ottla.sdk.connection import requests
from ottla.sdk.connection.exchange import Exchange
from ottla.sdk.connection.versions import EPOCH_ENDS_FOR_CONSUMERS
from ottla.sdk.consume.partitions.position import Ago, Position, Start, Time
from ottla.sdk.consume.positions.assigned_positions import AssignedPositions
from ottla.sdk.consume.positions.changes import Changes
from ottla.sdk.consume.positions.lookups import by_place, ends_of_epochs, offset_in
from ottla.sdk.core import ClientCore
from ottla.sdk.events import Node


class PositionLookups:
    """Looks up the positions of one fetcher.

    Args:
        wall: returns the time of day, in seconds since 1970; needed for `Ago` only. It is called for each lookup: the
            machine's own time stands still while the computer sleeps, and clocks are adjusted.
    """

    def __init__(
        self,
        core: ClientCore,
        positions: AssignedPositions,
        changes: Changes,
        isolation: int,
        wall: Callable[[], float] | None = None,
    ) -> None:
        self._core, self._positions, self._changes = core, positions, changes
        self._isolation, self._wall = isolation, wall

    @property
    def knows_the_time(self) -> bool:
        """Whether `Ago` can be looked up."""
        return self._wall is not None

    def resolve(self, node: Node, positions: Sequence[Position], now: float) -> None:
        """Ask the node at which offsets to start (ListOffsets)."""
        epoch, timeout = self._positions.leader_epoch, self._core.options.request_timeout
        wanted = {each.place: (self._timestamp(each), epoch(each)) for each in positions}
        build = partial(requests.list_offsets, wanted, self._isolation, timeout)
        asked = [(each, each.ask()) for each in positions]

        def ended(answer: ListOffsetsResponse | OttlaError, now: float) -> None:
            still = [each for each, seeks in asked if each.answered(seeks)]
            for position, result in self._results(still, answer, now):
                self._resolved(position, result, wanted[position.place][0], exchange.version, now)
            self._changes.notify()

        exchange = Exchange(ListOffsetsRequest, ended, now + timeout, build=build)
        self._core.submit(node, exchange, now)

    def validate(self, node: Node, positions: Sequence[Position], now: float) -> None:
        """Ask the new leader whether its log matches the records that were read (OffsetForLeaderEpoch)."""
        wanted = {each.place: (each.fetch_epoch, self._positions.leader_epoch(each)) for each in positions}
        until = now + self._core.options.request_timeout
        asked = [(each, each.ask()) for each in positions]

        def ended(answer: OffsetForLeaderEpochResponse | OttlaError, now: float) -> None:
            still = [each for each, seeks in asked if each.answered(seeks)]
            if isinstance(answer, UnsupportedVersion):
                for position in still:
                    self._valid(position)
            else:
                for position, result in self._results(still, answer, now):
                    self._validated(position, result)
            self._changes.notify()

        exchange = Exchange(ends_of_epochs(wanted), ended, until, versions=EPOCH_ENDS_FOR_CONSUMERS)
        self._core.submit(node, exchange, now)

    def _results(
        self,
        positions: Sequence[Position],
        answer: ListOffsetsResponse | OffsetForLeaderEpochResponse | OttlaError,
        now: float,
    ) -> Iterator[tuple[Position, Any]]:
        """The result for each position; a position whose result is an error is retried."""
        if isinstance(answer, OttlaError):
            self._positions.retry(positions, answer, now)
            return
        results = by_place(answer)
        for position in positions:
            where, result = f"{position.place[0]}-{position.place[1]}", results.get(position.place)
            if result is None:
                self._positions.retry([position], RemoteProtocolError(f"{where} was left out of the answer"), now)
            elif result.error_code:
                self._positions.retry([position], broker_error(result.error_code, where, repeatable=True), now)
            else:
                position.recovered()
                yield position, result

    def _resolved(
        self, position: Position, result: ListOffsetsPartitionResponse, timestamp: int, version: int, now: float
    ) -> None:
        """Process the ListOffsets result for one position; the request contained ``timestamp``."""
        offset = offset_in(result)
        if timestamp == LATEST and _by_time(position.start):
            position.log_ends_at(offset)
        elif offset >= 0:
            self._positions.resolved(position, offset)
        elif timestamp < 0:
            where = f"{position.place[0]}-{position.place[1]}"
            self._positions.retry([position], RemoteProtocolError(f"{where}: the answer has no offset"), now)
            return
        elif version == 0:
            # Version 0 returns segments, and all of them are newer: the record comes after the log's beginning.
            position.look_up(Time(EARLIEST))
        else:
            assert position.end_before is not None, "the end is requested first"
            self._positions.resolved(position, position.end_before[1])
        self._changes.review(position)

    def _validated(self, position: Position, result: EpochEndOffset) -> None:
        positions = self._positions
        # -1: the leader knows no epoch as old as the one in the request, so nothing of what was read may be left.
        if result.end_offset < 0 or result.leader_epoch < 0:
            positions.confirm(position, lambda: positions.truncated(position, -1, -1))
        elif result.end_offset < position.fetch_offset:
            end, epoch = result.end_offset, result.leader_epoch
            positions.confirm(position, lambda: positions.truncated(position, end, epoch))
        else:
            self._valid(position)

    def _valid(self, position: Position) -> None:
        if position.led is not None:
            position.vouched(position.led)
        self._changes.review(position)

    def _timestamp(self, position: Position) -> int:
        """The timestamp for the next ListOffsets request."""
        start, end = position.start, position.end_before
        if _by_time(start) and (end is None or end[0] != position.led):
            return LATEST
        if isinstance(start, Ago) and self._wall is not None:
            return max(0, int((self._wall() - start.seconds) * 1000))
        return start.timestamp if isinstance(start, Time) else LATEST


def _by_time(start: Start) -> bool:
    """Whether the start is a time, not the beginning or end of the log."""
    return isinstance(start, Ago) or (isinstance(start, Time) and start.timestamp >= 0)
