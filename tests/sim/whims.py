"""What workmen do beside their transactions now and then: commit offsets of the same partitions elsewhere, and seek.

A correct client refuses every such commit while a transaction holds the partition, so it has no effect: the outputs
exist once, and the group's offsets never go back. If a commit is accepted, the checks of the world fail.

A workman who seeks back asks for the same inputs a second time. Then their outputs may exist twice, and the group's
offset may go back to where the workman sought.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from ottla.errors import LocalProtocolError, OttlaError
from ottla.sdk.admin import CommittedOffset
from ottla.sdk.consume.core import ConsumerCore, Taken
from ottla.sdk.consume.reading.fetcher import Offset
from ottla.sdk.produce.core import ProducerCore
from ottla.sdk.produce.options import ProducerOptions
from ottla.sdk.produce.producer_leaving import CLOSE_TIMEOUT
from ottla.sdk.transaction.core import BatchOffset, TransactionCore
from ottla.sdk.transaction.transform import TransformCore, TransformTransactionCore
from tests.sim.transaction_ledger import ABORTED, COMMITTED, UNCERTAIN
from tests.sim.users import Cancelled, Script, Violation

if TYPE_CHECKING:
    from tests.sim.workmen import Attempt, Part, Workman

_TIMEOUT = 3.0
"""Timeout of the second producer's transactions."""


class Whim(Exception):
    """A block ends without a commit, because a transaction beside it did not end as its user wished."""


@dataclass(slots=True, eq=False)
class Whims:
    """The whims of one workman, with random numbers of their own."""

    workman: "Workman"
    chance: Random
    second: ProducerCore | None = None
    """A second producer of the process."""

    def begin(self) -> None:
        """Maybe open a second producer."""
        workman, process = self.workman, self.workman.process
        if self.chance.random() < 0.4:
            name = f"{workman.name}-second"
            options = ProducerOptions(transactional_id=name, transaction_timeout=_TIMEOUT, linger=0.0)
            workman.world.ledger.timeouts[name] = _TIMEOUT
            self.second = process.do(lambda: ProducerCore(process.core, options, self.chance))

    def end(self) -> Script:
        if self.second is not None:
            steps = self.second.leave(self.workman.ends_by)
            yield from self.workman.process.perform(steps, "leaving the producer", within=2 * CLOSE_TIMEOUT)

    def _begun(self, share: float) -> "Part[TransactionCore | None]":
        """Sometimes, a transaction of the second producer."""
        if self.second is None or self.second.fatal is not None or self.chance.random() >= share:
            return None
        transaction = TransactionCore(self.workman.process.core, self.second)
        try:
            yield from self.workman.process.perform(transaction.begin(), "begin")
        except OttlaError as error:
            self._say(f"the second producer cannot begin: {error}")
            return None
        return transaction

    def _say(self, text: str) -> None:
        self.workman.world.say("·", self.workman.name, text)

    # -- without a transform -----------------------------------------------------------------------------------------

    def overlap(self, consumer: ConsumerCore, taken: Sequence[Taken]) -> Script:
        """Within a transaction that holds the partitions of ``taken``, handle the next batch in another one.

        If that is not committed, seek back to the batch.
        """
        if (transaction := (yield from self._begun(0.3))) is None:
            return
        workman, process, world = self.workman, self.workman.process, self.workman.world
        attempt, found = world.attempt(workman), None
        error: BaseException | None = None
        try:
            found = yield from process.perform(consumer.poll(workman.name, 0.3), "a batch")
            if found is not None:
                yield from workman.handle(transaction, [found[0]], attempt)
                self._commit(transaction, consumer, found, taken, attempt)
        except (OttlaError, Cancelled, Exception) as raised:
            if isinstance(raised, Violation):
                raise
            error = raised
        try:
            yield from process.perform(transaction.leave(error), "the end of a transaction beside another")
        except OttlaError as raised:
            error = raised
        attempt.outcome = {True: COMMITTED, False: ABORTED, None: UNCERTAIN}[transaction.committed]
        self._say(f"{attempt.name}, beside another transaction, is {attempt.outcome}, by {error!r}")
        world.features[f"a transaction beside another is {attempt.outcome}"] += 1
        if transaction.committed is None or isinstance(error, Cancelled):
            raise Whim from error
        if found is not None and not transaction.committed:
            yield from self._return(consumer, found)

    def _commit(
        self,
        transaction: TransactionCore,
        consumer: ConsumerCore,
        found: Taken,
        taken: Sequence[Taken],
        attempt: "Attempt",
    ) -> None:
        """Add a batch's offset to a transaction, while another one may hold the partition."""
        fetched, claim = found
        held = any(claim is not None and each is not None and each.assignment is claim.assignment for _, each in taken)
        offset = _offset(consumer, found)
        try:
            self.workman.process.do(partial(transaction.commit_offsets, [offset]))
        except LocalProtocolError as error:
            if not held:
                raise Violation("an offset is refused that no transaction holds", f"{offset.place}: {error}") from error
            self.workman.world.features["a transaction is refused a partition that another one holds"] += 1
            raise
        attempt.claims[offset.place] = fetched.next_offset

    def _return(self, consumer: ConsumerCore, found: Taken) -> Script:
        """Seek back to a batch that was not committed."""
        fetched, claim = found
        if claim is None or claim.assignment.over:
            return
        self.workman.world.features["a seek comes within a transaction"] += 1
        starts = {(fetched.topic, fetched.partition): Offset(fetched.first_offset)}
        try:
            yield from self.workman.process.perform(consumer.navigation.seek(starts), "seek")
        except OttlaError as error:
            raise Whim from error

    def commit_held(self, consumer: ConsumerCore, found: Taken) -> None:
        """Sometimes, try to commit an offset beside the open transaction that commits it."""
        _, claim = found
        if claim is None or claim.assignment.over or self.chance.random() >= 0.3:
            return
        calls, (_, place, at, _) = consumer.committer, _offset(consumer, found)
        call = self.chance.choice(
            (
                lambda: calls.commit_batch_soon(place, at, claim),
                lambda: calls.commit_soon({place: at}),
                lambda: calls.commit_soon(None),
            )
        )
        try:
            self.workman.process.do(call)
        except LocalProtocolError:
            self.workman.world.features["a commit is refused beside a transaction"] += 1

    def commit_again(self, consumer: ConsumerCore, attempt: "Attempt | None") -> None:
        """Sometimes, commit the offsets of the last transaction again: the request may overtake the next transaction.

        A late request may take the group back if a connection broke before its answer. So only without faults.
        And only once the group has the offsets: otherwise the request replaces offsets of a transaction whose marker is
        late.
        """
        world = self.workman.world
        if attempt is None or not attempt.claims or not world.calm or self.chance.random() >= 0.8:
            return
        if any(world.stand(place) != offset for place, offset in attempt.claims.items()):
            return
        try:
            self.workman.process.do(lambda: consumer.committer.commit_soon(attempt.claims))
            world.features["a commit is in flight as a transaction begins"] += 1
        except LocalProtocolError as error:  # the partition was lost
            self._say(str(error))

    # -- with a transform --------------------------------------------------------------------------------------------

    def intrude(
        self, transform: TransformCore, taken: Sequence[Taken], transaction: TransformTransactionCore
    ) -> "Part[bool]":
        """Sometimes, let another transaction hold the batches when the transform's begins; return whether it did."""
        if (other := (yield from self._begun(0.1))) is None:
            return False
        process, world = self.workman.process, self.workman.world
        offsets = [_offset(transform.consumer, each) for each in taken]
        error: BaseException = Whim()
        try:
            process.do(partial(other.commit_offsets, offsets))
        except OttlaError as lost:
            error = lost
        else:
            yield from self._begin_refused(taken, transaction)
        try:
            yield from process.perform(other.leave(error), "the end of a transaction beside another")
        except OttlaError as raised:
            self._say(f"the second producer: {raised}")
        world.features["another transaction holds the batches of a transform"] += isinstance(error, Whim)
        return isinstance(error, Whim)

    def _begin_refused(self, taken: Sequence[Taken], transaction: TransformTransactionCore) -> Script:
        process = self.workman.process
        try:
            yield from process.perform(transaction.begin(), "begin")
        except OttlaError as refused:
            self._say(f"begins beside another transaction: {refused}")
            return
        if not any(claim is None or claim.assignment.over for _, claim in taken):
            raise Violation("two transactions hold a partition", self.workman.name)
        yield from process.perform(transaction.end(Whim()), "the end")

    def seek_back(self, consumer: ConsumerCore, taken: Sequence[Taken]) -> Script:
        """Sometimes, seek back to a batch of the open transaction, within its block or while it ends."""
        workman, world, chance = self.workman, self.workman.world, self.chance
        fetched, claim = chance.choice(taken)
        if not world.seeks or chance.random() >= 0.2 or claim is None or claim.assignment.over:
            return
        world.seeks -= 1
        place = (fetched.topic, fetched.partition)
        start = min(each.first_offset for each, _ in taken if (each.topic, each.partition) == place)
        world.returned.append((place, start))
        world.features["a workman seeks back within a transaction"] += 1
        self._say(f"seeks {place} back to {start}")

        def seek(after: float) -> Script:
            yield after
            try:
                yield from workman.process.perform(consumer.navigation.seek({place: Offset(start)}), "seek")
            except OttlaError as error:
                self._say(str(error))

        if chance.random() < 0.5:
            yield from seek(0.0)
        else:
            workman.process.run(seek(chance.choice((0.0, 0.002, 0.01))))


def _offset(consumer: ConsumerCore, taken: Taken) -> BatchOffset:
    fetched, claim = taken
    at = CommittedOffset(fetched.next_offset, fetched.leader_epoch)
    return BatchOffset(consumer.committer, (fetched.topic, fetched.partition), at, claim)
