"""What idempotent clients have sent to rewritten topics: the memory that makes a retry harmless.

A client numbers the records of each (producer id, partition it chose); a broker remembers the last five batches of each
and answers a retry from memory. Here the records go elsewhere, under other producer ids, so this memory is the
proxy's: a `Window` for each (producer id, topic, partition the client chose).

Rules:
- Only producer ids that this proxy has handed on are known. Any other might have stored records through an earlier
  life of the proxy, so it is fenced, even at sequence 0: a restart never duplicates.
- Batches of a window are delivered one after the other, each when the one before is stored. So a refused batch
  leaves no gap behind it, just as on a broker: its followers are answered OUT_OF_ORDER_SEQUENCE_NUMBER.
- Of a batch that was stored in part, the stored records are remembered one by one: a retry, in whatever pieces (Java
  splits batches that are too large), delivers only the others. The numbers do not say that it is a retry, since
  clients give other records the numbers of a refused batch; so what is in the records is remembered too.
- A batch whose outcome nobody can know fences its producer: a retry might duplicate it.
- The epoch is the window's, not the producer's: Java raises it by itself, partition by partition.

Source: ProducerStateManager.java, ProducerAppendInfo.java (NUM_BATCHES_TO_RETAIN = 5).
"""

from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from ottla.errors import InvalidProducerEpoch, OutOfOrderSequenceNumber, ProducerFenced

REMEMBERED_BATCHES = 5
REMEMBERED_PRODUCERS = 100_000
"""The longest unused of more are forgotten, and fenced if they come again."""
_SEQUENCES = 2**31

B = TypeVar("B", bound="Numbered")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a client is told of a batch."""

    error_code: int
    base_offset: int = -1
    error_message: str | None = None


@dataclass(slots=True, eq=False)
class Numbered:
    """A batch that a client has numbered, while it is under way."""

    epoch: int
    base_sequence: int
    count: int

    @property
    def next_sequence(self) -> int:
        return (self.base_sequence + self.count) % _SEQUENCES


class Window(Generic[B]):
    """The batches of one producer id to one partition.

    Attributes:
        under_way: oldest first; only the first is being delivered.
    """

    def __init__(self) -> None:
        self.under_way: deque[B] = deque()
        self._epoch = -1
        self._next = 0
        self._done: deque[tuple[int, int, Outcome]] = deque(maxlen=REMEMBERED_BATCHES)
        self._stored_ahead: dict[int, int] = {}
        """Sequence -> fingerprint of a record that is stored although its batch was refused."""
        self._fenced = False

    def look_up(self, epoch: int, base_sequence: int, count: int) -> B | Outcome | None:
        """What is known of a batch: it is under way, it is done, or (``None``) it is new and next.

        Raises:
            InvalidProducerEpoch: the epoch is over.
            OutOfOrderSequenceNumber: it is neither a retry nor next.
            ProducerFenced: a retry might duplicate records.
        """
        if epoch < self._epoch:
            raise InvalidProducerEpoch(f"epoch {epoch} has been followed by {self._epoch}")
        if epoch > self._epoch:
            if base_sequence != 0:
                raise OutOfOrderSequenceNumber(f"epoch {epoch} begins with sequence {base_sequence} instead of 0")
            return None
        if self._fenced:
            raise ProducerFenced("nobody can know whether an earlier batch of this producer was stored")
        for batch in self.under_way:
            if (batch.epoch, batch.base_sequence, batch.count) == (epoch, base_sequence, count):
                return batch
        for first, size, outcome in self._done:
            if (first, size) == (base_sequence, count):
                return outcome
        if base_sequence != self._next:
            raise OutOfOrderSequenceNumber(f"sequence {base_sequence} comes where {self._next} is next")
        return None

    def begin(self, batch: B) -> bool:
        """Take on a batch that `look_up` found to be next; tells whether it may be delivered at once."""
        if batch.epoch > self._epoch:
            self._epoch, self._fenced = batch.epoch, False
            self._done.clear()
            self._stored_ahead.clear()
        self._next = batch.next_sequence
        self.under_way.append(batch)
        return len(self.under_way) == 1

    @property
    def has_stored_ahead(self) -> bool:
        """Records of a refused batch are stored: what comes next may be among them."""
        return bool(self._stored_ahead)

    def stored_already(self, base_sequence: int, fingerprints: Sequence[int]) -> set[int]:
        """The indexes of those records of a new batch that are stored since an earlier attempt.

        If any record differs from the one that is stored under its number, the client has given up the refused batch
        and uses its numbers anew: then none is, and what was stored of that batch is forgotten.
        """
        if not self._stored_ahead:
            return set()
        numbered = ((index, (base_sequence + index) % _SEQUENCES) for index in range(len(fingerprints)))
        known = {index: self._stored_ahead[sequence] for index, sequence in numbered if sequence in self._stored_ahead}
        if any(fingerprints[index] != fingerprint for index, fingerprint in known.items()):
            self._stored_ahead.clear()
            return set()
        return set(known)

    def succeed(self, outcome: Outcome) -> None:
        """The batch being delivered is stored."""
        batch = self.under_way.popleft()
        if batch.epoch == self._epoch:
            self._done.append((batch.base_sequence, batch.count, outcome))
            if self._stored_ahead:
                for index in range(batch.count):
                    self._stored_ahead.pop((batch.base_sequence + index) % _SEQUENCES, None)

    def abandon(self) -> list[B]:
        """Nobody knows any more what is stored: fence the producer. Returns the batches that were under way."""
        under_way, self.under_way = list(self.under_way), deque()
        self._fenced = True
        return under_way

    def fail(self, stored: Mapping[int, int], *, fence: bool) -> list[B]:
        """The batch being delivered is refused.

        Args:
            stored: those of its records that are stored all the same, index -> fingerprint.
            fence: of some nobody can know.

        Returns:
            The batches of its epoch that were to follow it, which are refused with it.
        """
        failed = self.under_way.popleft()
        followers = [batch for batch in self.under_way if batch.epoch == failed.epoch]
        for batch in followers:
            self.under_way.remove(batch)
        if failed.epoch == self._epoch:
            self._next = failed.base_sequence
            self._fenced = self._fenced or fence
            self._stored_ahead |= {(failed.base_sequence + index) % _SEQUENCES: stored[index] for index in stored}
        return followers


class Producers(Generic[B]):
    """The producer ids that this proxy has handed on, and their windows."""

    def __init__(self) -> None:
        self._known: OrderedDict[int, dict[tuple[str, int], Window[B]]] = OrderedDict()

    def handed_on(self, producer_id: int) -> None:
        """Upstream gave a client this id, through this proxy."""
        self._known.setdefault(producer_id, {})
        self._known.move_to_end(producer_id)
        while len(self._known) > REMEMBERED_PRODUCERS:
            self._known.popitem(last=False)

    def window(self, producer_id: int, topic: str, partition: int) -> Window[B]:
        """The window for what a producer sends to a partition.

        Raises:
            ProducerFenced: this proxy has not handed the id on.
        """
        windows = self._known.get(producer_id)
        if windows is None:
            raise ProducerFenced(
                f"this proxy has not handed out producer id {producer_id} (was it restarted?), so it cannot tell new "
                "records from stored ones: open a new producer"
            )
        self._known.move_to_end(producer_id)
        if (topic, partition) not in windows:
            windows[topic, partition] = Window()
        return windows[topic, partition]
