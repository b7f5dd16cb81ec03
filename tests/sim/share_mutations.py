"""Mutations of the share consumer; see `tests.sim.mutations`."""

from typing import Any

from ottla.codec.apis.share_fetch import GAP
from ottla.errors import OttlaError
from ottla.sdk.outcome import Outcome
from ottla.sdk.share.core import ShareConsumerCore
from ottla.sdk.share.lock_watch import LockWatch
from ottla.sdk.share.locked_record import LockedRecord, RecordAcknowledgement, SharedPartition
from ottla.sdk.share.member import ShareMember
from ottla.sdk.share.node_reader import NodeReader
from ottla.sdk.share.reader import ShareReader
from ottla.sdk.share.share_session import ShareSession
from ottla.sdk.share.unreported_failures import UnreportedFailures
from ottla.sdk.steps import Steps
from tests.sim.mutations import Mutations

OF_SHARES = Mutations("shares", within=200)
MUTATIONS, SEEDS, _mutation = OF_SHARES.known, OF_SHARES.seeds, OF_SHARES.add


def _nothing(original: Any) -> Any:
    return lambda *given, **named: None


# -- sessions ----------------------------------------------------------------------------------------------------------


def _keeps_what_waits(end: Any) -> Any:
    def broken(self: ShareSession, why: str, *, unknown: bool) -> list[LockedRecord]:
        self._epoch, self._partitions = 0, {}
        for partition, acknowledgements in self._in_flight.items():
            self.again(partition, acknowledgements)
        self._in_flight.clear()
        self.resume()
        return []

    return broken


def _goes_on(end: Any) -> Any:
    def broken(self: ShareSession, why: str, *, unknown: bool) -> list[LockedRecord]:
        before = self._epoch, self._partitions
        lost = end(self, why, unknown=unknown)
        self._epoch, self._partitions = before
        return list(lost)

    return broken


def _always_known(lose: Any) -> Any:
    return lambda self, why, *, unknown=False: lose(self, why, unknown=False)


def _as_if_stored(failed: Any) -> Any:
    def broken(self: NodeReader, error: OttlaError) -> Steps[None]:
        for each in [each for each in self.session.locked() if each.in_flight]:
            each.stored()
        yield from failed(self, error)

    return broken


def _one_for_all_requests(answered: Any) -> Any:
    def broken(self: ShareSession) -> None:
        self._epoch = 1

    return broken


_mutation("records of a lost session are acknowledged in the next one", (ShareSession, "end", _keeps_what_waits))
_mutation("a lost session goes on", (ShareSession, "end", _goes_on))
_mutation("a session's epoch stays", (ShareSession, "answered", _one_for_all_requests))
_mutation("an unknown outcome counts as a failure", (LockedRecord, "lose", _always_known))
_mutation("an unknown outcome counts as a success", (NodeReader, "_failed", _as_if_stored))


# -- acknowledgements --------------------------------------------------------------------------------------------------


def _refused_is_stored(refused: Any) -> Any:
    def broken(self: NodeReader, partition: Any, result: Any, acknowledgements: list[Any], nodes: Any) -> None:
        for each in acknowledgements:
            if each.locked is not None:
                each.locked.stored()

    return broken


def _all_refused(refused: Any) -> Any:
    def broken(self: ShareSession, partition: SharedPartition, acknowledgements: list[RecordAcknowledgement]) -> None:
        for each in acknowledgements[1:]:  # only the first is sent again
            each.locked.stored() if each.locked is not None else None
        self.again(partition, acknowledgements[:1])

    return broken


def _no_gaps(queue_for: Any) -> Any:
    def broken(self: ShareSession, partition: SharedPartition, acknowledgement: RecordAcknowledgement) -> None:
        if acknowledgement.kind != GAP:
            queue_for(self, partition, acknowledgement)

    return broken


def _at_once(finish: Any) -> Any:
    def broken(self: ShareReader) -> Outcome[None]:
        done: Outcome[None] = Outcome()
        done.succeed(None)
        return done

    return broken


def _raises_again(self: UnreportedFailures) -> None:
    failures = dict(self._failures)
    if failures:
        error = self._taken()
        self._failures = {place: each for place, each in failures.items() if not hasattr(each, "raised")}
        for each in failures.values():
            setattr(each, "raised", True)  # noqa: B010 # an attribute of this mutation
        raise error


_mutation("the delivery before keeps its acknowledgement", (ShareReader, "delivered_again", _nothing))
_mutation("a refused acknowledgement counts as stored", (NodeReader, "_refused", _refused_is_stored))
_mutation("of acknowledgements refused together one is sent again", (ShareSession, "refused", _all_refused))
_mutation("gaps are not acknowledged", (ShareSession, "queue_for", _no_gaps))
_mutation("a failure that no call waits for is not reported", (ShareConsumerCore, "_report", _nothing))
_mutation("acknowledgements are dropped when the block ends", (ShareReader, "finish", _at_once))
_mutation("a failure is reported again", (UnreportedFailures, "raise_all", lambda _: _raises_again))


# -- records -----------------------------------------------------------------------------------------------------------


def _unlimited(allowance: Any) -> Any:
    def broken(self: ShareReader, reader: NodeReader) -> int:
        return 1000 if allowance(self, reader) else 0

    return broken


_mutation("a consumer fetches as many records as there are", (ShareReader, "allowance", _unlimited))
_mutation("records are handed out although their lock has expired", (LockWatch, "_drop", _nothing))
_mutation("a refused partition is not looked up", (ShareReader, "refused", _nothing))


# -- members -----------------------------------------------------------------------------------------------------------


_mutation("an expelled member stays out", (ShareMember, "_expelled", _nothing))
_mutation("an assignment is ignored", (ShareReader, "assign", _nothing))
