"""Every delivery that brokerlite makes to a share group, and the rules that it must keep.

`watched` gives the class that stands in for `SharePartition`: it does the same, and notes each call in a `ShareLedger`.

Rules:
- A record has one member at a time. Each delivery has the count that follows the last one, up to the group's limit.
- A lock ends in time, and no earlier. After the last delivery a record that is not accepted is archived.
- A final record is never delivered again.
- A result is answered as stored only if it is, or if its record was final before. It is there after every restart.
- If the power was not cut, so is everything that was stored: results, counts of released records, the start offset.
  Deliveries without a result may be forgotten.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any
from uuid import UUID

from ottla.brokerlite.machines.core import BrokerCore
from ottla.brokerlite.machines.share_partitions.acquisition import AcquiredRun, FoundBatch, Wanted
from ottla.brokerlite.machines.share_partitions.record_results import RecordResults
from ottla.brokerlite.machines.share_partitions.share_partition import SharePartition, StoreProgress
from ottla.brokerlite.machines.share_partitions.share_settings import ShareLimits
from ottla.brokerlite.machines.share_partitions.stored_state import UNDECIDED, ShareKey, StoredBatch, StoredState
from ottla.codec.apis.share_acknowledge import ShareAcknowledgeRequest, ShareAcknowledgeResponse
from ottla.codec.apis.share_fetch import GAP, RELEASE, RENEW, ShareFetchRequest, ShareFetchResponse
from ottla.errors import BrokerError
from tests.sim.broker.server import Server
from tests.sim.data import Place
from tests.sim.sharing import KINDS, Delivery, SharedRecord, SharingWorld
from tests.sim.users import Violation

AGAIN = "a final record is delivered again"
TWO = "a record has two members"
COUNT = "a delivery has the wrong count"
TOO_OFTEN = "a record is delivered more often than the group allows"
FOREIGN = "a result counts without its delivery"
LOCK = "a lock does not end in time"
STALE = "a lock begins before its delivery"
UNTRUE = "a result is answered as stored, and is not"
UNDONE = "a result that was answered as stored is undone"
BACK = "the stored state of a share partition has gone back"


class ShareLedger:
    """
    Args:
        world: gets each delivery and its result.

    Attributes:
        final: record -> ``accepted``, ``rejected``, ``archived`` or ``a gap``.
        begin: partition -> where the group has started.
        needless: results that were answered as stored although their records were final before.
    """

    def __init__(self, world: SharingWorld, server: Server) -> None:
        self._world, self._server = world, server
        self.final: dict[SharedRecord, str] = {}
        self.begin: dict[Place, int] = {}
        self.needless: set[Delivery] = set()
        self._held: dict[Place, dict[int, tuple[str, float]]] = {}
        """Partition -> offset -> the member that has the record, and when its lock ends."""
        self._counts: dict[SharedRecord, int] = {}
        """The last count of each record in the memory of the broker."""
        self._last: dict[SharedRecord, Delivery] = {}
        self._of_member: dict[tuple[str, Place, int, int], Delivery] = {}
        """The last delivery of each member, by its partition, offset and count."""
        self._newest: dict[tuple[str, SharedRecord], Delivery] = {}
        self._made: Counter[tuple[Place, int, int]] = Counter()
        self._kept: dict[ShareKey, StoredState] = {}
        """The states as they were last stored."""
        self._pending: list[tuple[Delivery, str, int]] = []
        """Results that are being stored, with their kinds."""
        self._gone: set[UUID] = set()
        """Topics that were deleted, or are about to be."""
        self._asked: dict[tuple[str, SharedRecord], tuple[Delivery, str]] = {}
        """Results that were stored, and are not answered yet."""
        self._late: set[tuple[str, SharedRecord]] = set()
        """Members and records whose results came when the group's start was behind them, and are not answered yet."""
        self._told: dict[Delivery, str] = {}
        """Results that were answered as stored."""
        self._power_cuts = 0
        self.found: Violation | None = None
        """The first rule that was broken; the machine itself catches the errors of its waiting answers."""

    def _broken(self, rule: str, detail: str) -> Violation:
        self.found = self.found or Violation(rule, detail)
        return self.found

    # -- for the world

    def delivery(self, member: str, place: Place, offset: int, count: int) -> Delivery:
        """The last delivery to the member with this count."""
        return self._of_member.get((member, place, offset, count), Delivery(place, offset, count, -1))

    def held(self) -> list[SharedRecord]:
        """The records that members have."""
        return [(place, offset) for place, offsets in self._held.items() for offset in offsets]

    def answered(self, request: Any, answer: Any) -> None:
        """Note which results were answered as stored."""
        if not isinstance(request, ShareAcknowledgeRequest | ShareFetchRequest) or answer.error_code:
            return
        failed = {(topic, index) for topic, index, code in _codes(answer) if code}
        for topic in request.topics:
            for part in topic.partitions:
                place = self.place(topic.topic_id, part.partition_index)
                if place is None or (topic.topic_id, part.partition_index) in failed:
                    continue
                for batch in part.acknowledgement_batches:
                    types = batch.acknowledge_types
                    for offset in range(batch.first_offset, batch.last_offset + 1):
                        kind = types[0] if len(types) == 1 else types[offset - batch.first_offset]
                        self._told_as_stored((request.member_id or "", (place, offset)), kind)

    def _told_as_stored(self, asked: tuple[str, SharedRecord], kind: int) -> None:
        """An answer says to a member that the result of a record is stored."""
        stored = self._asked.pop(asked, None)
        if stored is not None:
            self._told[stored[0]] = stored[1]
            self._world.features["a result is answered as stored"] += 1
        elif asked in self._late:
            self._late.remove(asked)
        elif kind != RENEW:
            raise self._broken(UNTRUE, f"{asked}, {kind}")

    def place(self, topic_id: UUID, partition: int) -> Place | None:
        """Name a partition; each incarnation of a recreated topic has another name. ``None``: it does not count."""
        known = self._server.core.topics.by_id.get(topic_id)
        if known is None or topic_id in self._gone:
            return None
        return known.name if known.name != self._world.passing else f"{known.name}/{topic_id.hex[:6]}", partition

    def _place(self, key: ShareKey) -> Place | None:
        return self.place(key.topic_id, key.partition)

    def deleting(self, topic_id: UUID) -> None:
        """Forget a topic that is about to be deleted."""
        gone = self.place(topic_id, 0)
        self._gone.add(topic_id)
        if gone is not None:
            name = gone[0]
            self._kept = {key: state for key, state in self._kept.items() if key.topic_id != topic_id}
            self._told = {each: what for each, what in self._told.items() if each.place[0] != name}
            self._pending = [each for each in self._pending if each[0].place[0] != name]
            self.final = {each: what for each, what in self.final.items() if each[0][0] != name}
            self.begin = {place: offset for place, offset in self.begin.items() if place[0] != name}
            self._held = {place: held for place, held in self._held.items() if place[0] != name}

    def _observe(self, delivery: Delivery, member: str, what: str) -> None:
        if delivery.place[0] in self._world.topics:
            self._world.observe(delivery, member, what)
        else:
            self._world.features[f"a record of a topic that is recreated is {what}"] += 1

    # -- the broker's calls

    def loaded(self, key: ShareKey, stored: StoredState) -> None:
        """A share partition is loaded from its stored state."""
        if (place := self._place(key)) is None:
            return
        self.begin.setdefault(place, stored.start_offset)
        self._held[place] = {}
        self._counts = {record: count for record, count in self._counts.items() if record[0] != place}
        for batch in stored.batches:
            self._counts.update(((place, offset), batch.deliveries) for offset in range(batch.first, batch.last + 1))
        for record in [each for each, what in self.final.items() if each[0] == place and what == "archived"]:
            if not is_final(stored, record[1]):  # the disk refused to store that
                self._world.features["an archived record comes back"] += 1
                self._forget(record)

    def kept(self, key: ShareKey) -> None:
        """The progress of a share partition was stored."""
        state = self._server.core.share_states.get(key)
        if state is not None and self._place(key) is not None:
            self._kept[key] = state

    def acquired(
        self, key: ShareKey, member: str, taken: Iterable[AcquiredRun], limits: ShareLimits, now: float
    ) -> None:
        """A member gets records. Args: now: the time at which their locks begin."""
        if now != self._world.clock.now:
            raise self._broken(STALE, f"at {now}, for {member}")
        if (place := self._place(key)) is None:
            return
        held = self._held[place]
        for offset, count in [(offset, run.deliveries) for run in taken for offset in range(run.first, run.last + 1)]:
            record, told = (place, offset), f"{place[0]}-{place[1]} at {offset}, delivery {count} to {member}"
            if record in self.final:
                raise self._broken(AGAIN, f"{told}: it was {self.final[record]}")
            if offset in held:
                raise self._broken(TWO, f"{told}: {held[offset]}")
            if count != self._counts.get(record, 0) + 1:
                raise self._broken(COUNT, f"{told}, after {self._counts.get(record, 0)}")
            if count > limits.delivery_count:
                raise self._broken(TOO_OFTEN, told)
            delivery = Delivery(place, offset, count, self._made[place, offset, count])
            self._made[place, offset, count] += 1
            held[offset] = member, now + limits.lock_duration
            self._counts[record] = count
            self._last[record] = self._newest[member, record] = delivery
            self._of_member[member, place, offset, count] = delivery
            self._observe(delivery, member, "acquired")

    def acknowledging(self, key: ShareKey, member: str, results: Iterable[RecordResults], start: int) -> None:
        """A member's results are to be stored."""
        self._pending = []
        if (place := self._place(key)) is None:
            return
        for each in results:
            for offset in range(each.first, each.last + 1):
                kind = each.types[0] if len(each.types) == 1 else each.types[offset - each.first]
                record = (place, offset)
                if each.last < start or offset < start:
                    self._late.add((member, record))
                    if (old := self._newest.get((member, record))) is not None:
                        self._pending.append((old, "", kind))
                elif record in self._last:
                    self._pending.append((self._last[record], member, kind))

    def acknowledged(self, limits: ShareLimits, now: float) -> None:
        """The results are stored. Args: now: the time at which renewed locks begin."""
        if now != self._world.clock.now:
            raise self._broken(STALE, f"renewed at {now}")
        pending, self._pending = self._pending, []
        for delivery, member, kind in pending:
            held = self._held[delivery.place]
            if not member:
                self._world.features["a result comes when its record is final"] += 1
                self.needless.add(delivery)
                continue
            if held.get(delivery.offset, ("", 0.0))[0] != member:
                raise self._broken(FOREIGN, f"{delivery} of {member}: {held.get(delivery.offset)}")
            if kind == RENEW:
                held[delivery.offset] = member, now + limits.lock_duration
                self._observe(delivery, member, "renewed")
                continue
            del held[delivery.offset]
            self._stored(delivery, member, kind, limits.delivery_count)

    def refused(self) -> None:
        """The results are not stored."""
        self._pending = []

    def _stored(self, delivery: Delivery, member: str, kind: int, limit: int) -> None:
        what = "a gap" if kind == GAP else KINDS[kind]
        self._observe(delivery, member, what)
        self._asked[member, delivery.record] = delivery, what
        if kind != RELEASE:
            self.final[delivery.record] = what
        elif delivery.number >= limit:
            self._archive(delivery.record)

    def _archive(self, record: SharedRecord) -> None:
        self._world.features["a record is archived after its last delivery"] += 1
        self.final[record] = "archived"
        self._world.archived.add(record)

    def given_back(self, key: ShareKey, which: Callable[[str, float], bool], limit: int) -> int:
        """Locks have ended without results; return how many."""
        if (place := self._place(key)) is None:
            return 0
        held = self._held[place]
        ended = [offset for offset, (member, until) in held.items() if which(member, until)]
        for offset in ended:
            del held[offset]
            if self._counts[place, offset] >= limit:
                self._archive((place, offset))
        return len(ended)

    def expired(self, key: ShareKey, count: int, now: float, limit: int) -> None:
        """Locks have expired."""
        ended = self.given_back(key, lambda member, until: until <= now, limit)
        self._world.features["a lock expires"] += ended
        if ended != count and self._place(key) is not None:
            raise self._broken(LOCK, f"{key.partition}: {count} locks end, and {ended} should")

    # -- restarts

    def restarted(self, core: BrokerCore) -> None:
        """The broker is up again: compare its stored states with the earlier ones."""
        cuts = self._world.features["the power is cut"]
        power, self._power_cuts = cuts != self._power_cuts, cuts
        self._held.clear()
        self._counts.clear()
        self._asked.clear()
        self._late.clear()
        states = {place: core.share_states.get(key) for key in core.share_states if (place := self._place(key))}
        for key, before in self._kept.items():
            now = core.share_states.get(key)
            if not power and (now is None or (lost := _lost(before, now)) is not None):
                raise self._broken(BACK, f"{self._place(key)}: {before}; now {now}, offset {lost if now else ''}")
        for key in core.share_states:
            self.kept(key)
        undecided = [place for place in self.begin if not _is_decided(states.get(place))]
        for place in undecided:
            del self.begin[place]
        self._settle_pending(states)
        for record, what in list(self.final.items()):
            if is_final(states.get(record[0]), record[1]):
                continue
            if what != "archived":
                self._undo(self._last[record], what, power=power)
            self._forget(record)
        for delivery, what in self._told.items():
            state = states.get(delivery.place)
            if not is_final(state, delivery.offset) and _count(state, delivery.offset) < delivery.number:
                raise self._broken(UNDONE, f"{delivery} was {what}; now {state}")

    def _settle_pending(self, states: "dict[Place, StoredState | None]") -> None:
        """The broker was killed while it stored results: learn whether it has."""
        pending, self._pending = self._pending, []
        for delivery, member, kind in pending:
            state = states.get(delivery.place)
            final, count = is_final(state, delivery.offset), _count(state, delivery.offset)
            if member and kind != RENEW and (final or (kind == RELEASE and count == delivery.number)):
                self._world.features["a kill comes after a result is written"] += 1
                self._stored(delivery, member, kind, delivery.number if final else delivery.number + 1)
        self._asked.clear()

    def _undo(self, delivery: Delivery, what: str, *, power: bool) -> None:
        if delivery in self._told or not power:
            raise self._broken(UNDONE, f"{delivery} was {what}")
        self._world.features["a result that was not answered is undone"] += 1
        self._world.stored.pop(delivery, None)

    def _forget(self, record: SharedRecord) -> None:
        del self.final[record]
        self._world.archived.discard(record)


def _is_decided(state: StoredState | None) -> bool:
    return state is not None and state.start_offset != UNDECIDED


def is_final(state: StoredState | None, offset: int) -> bool:
    """Whether a record is final in a stored state."""
    if state is None or state.start_offset == UNDECIDED:
        return False
    found = _batch(state, offset)
    return offset < state.start_offset or (found is not None and found.state != 0)


def _batch(state: StoredState, offset: int) -> StoredBatch | None:
    return next((each for each in state.batches if each.first <= offset <= each.last), None)


def _count(state: StoredState | None, offset: int) -> int:
    found = None if state is None else _batch(state, offset)
    return 0 if found is None else found.deliveries


def _lost(before: StoredState, now: StoredState) -> int | None:
    """The first offset of which a state has less than the one before."""
    if now.start_offset < before.start_offset:
        return now.start_offset
    for batch in before.batches:
        for offset in range(batch.first, batch.last + 1):
            if is_final(before, offset) and not is_final(now, offset):
                return offset
            if not is_final(now, offset) and _count(now, offset) < batch.deliveries:
                return offset
    return None


def _codes(answer: ShareAcknowledgeResponse | ShareFetchResponse) -> Iterator[tuple[Any, int, int]]:
    """Topic id, partition, and the error of its results."""
    for topic in answer.responses:
        for part in topic.partitions:
            code = getattr(part, "acknowledge_error_code", part.error_code)  # a ShareFetch has both
            yield topic.topic_id, part.partition_index, code


def watched(ledger: ShareLedger) -> type[SharePartition]:
    """Return a class that does the same as `SharePartition`, and tells the ledger."""

    class Watched(SharePartition):
        def __init__(self, limits: ShareLimits, store: StoreProgress, stored: StoredState) -> None:
            assert isinstance(store, partial)
            self._key: ShareKey = store.args[0]
            ledger.loaded(self._key, stored)

            def keep(start_offset: int, final: int, batches: Sequence[StoredBatch]) -> None:
                store(start_offset, final, batches)
                ledger.kept(self._key)

            super().__init__(limits, keep, stored)

        def acquire(self, wanted: Wanted, found: Sequence[FoundBatch], now: float) -> list[AcquiredRun]:
            taken = super().acquire(wanted, found, now)
            ledger.acquired(self._key, wanted.member, taken, self.limits, now)
            return taken

        def acknowledge(self, member: str, acknowledgements: Iterable[RecordResults], now: float) -> None:
            results = list(acknowledgements)
            ledger.acknowledging(self._key, member, results, self.start_offset)
            try:
                super().acknowledge(member, results, now)
            except BrokerError:
                ledger.refused()
                raise
            ledger.acknowledged(self.limits, now)

        def release(self, member: str) -> bool:
            released = super().release(member)
            ledger.given_back(self._key, lambda who, until: who == member, self.limits.delivery_count)
            return released

        def expire(self, now: float) -> tuple[int, BrokerError | None]:
            count, error = super().expire(now)
            ledger.expired(self._key, count, now, self.limits.delivery_count)
            return count, error

    return Watched
