"""Buffers fetched batches until the user takes them: limits their size, and takes turns between partitions.

Rules:
- `fetch_buffer_bytes` limits all buffers together, requests in flight included; a single batch may exceed it. The
  buffer of a paused partition is kept until other partitions need the room.
- Partitions take turns: after each batch handed out, a partition with more goes to the end. A partition in the middle
  of a decompressed batch keeps its turn if there is not enough memory for such a batch of every partition.
- The error of a partition that cannot be read any further waits for the partition's turn, and is raised once.

Source: FetchBuffer.java, FetchCollector.java.
"""

from collections import OrderedDict
from collections.abc import Container
from itertools import islice

from ottla.errors import OttlaError
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.consume.partitions.fetched import Fetched
from ottla.sdk.consume.partitions.position import Position
from ottla.sdk.consume.partitions.record_sets import AnyBatch
from ottla.sdk.options import Options

_AHEAD = 4
"""Responses that a partition may buffer if there is room enough for all partitions."""


class FetchBuffers:
    """Manages the buffers of all partitions of one fetcher."""

    def __init__(self, options: Options, isolation: int) -> None:
        self._capacity, self._usual = options.fetch_buffer_bytes, options.partition_max_bytes
        self._memory, self._isolation = options.fetch_batch_memory, isolation
        self.size = 0
        """Bytes in all buffers."""
        self._turns: OrderedDict[Position, None] = OrderedDict()
        """Partitions with records to take or an error to raise, in the order of their turns."""
        self.paused: dict[Position, None] = {}
        """Paused partitions: they are not fetched, and have no turn."""

    # -- filling and dropping -----------------------------------------------------------------------------------------

    def add(self, position: Position, batches: list[AnyBatch], visible: list[AnyBatch], size: int) -> Fetched | None:
        """Buffer ``size`` bytes of batches that start at the `fetch_offset`; return the new entry, if any."""
        fetched = position.add(batches, visible, size, self._memory)
        if fetched is not None:
            self.size += fetched.size
            self.offer(position)
        return fetched

    def offer(self, position: Position) -> None:
        """Give the partition a turn: it has records to take, or an error to raise."""
        if position not in self.paused:
            self._turns.setdefault(position)

    def drop(self, position: Position) -> None:
        """Drop the partition's buffer, and ignore responses to requests in flight."""
        self.size -= position.buffered
        position.drop()
        self._turns.pop(position, None)

    def put_back(self, position: Position, fetched: Fetched) -> None:
        """Return the batch that was taken last to the front of the buffer.

        If records after it were skipped meanwhile, the partition is fetched again from the start of this batch.
        """
        if not position.put_back(fetched):
            self.rewind(position)
            return
        self.size += fetched.size
        self.offer(position)
        if position in self._turns:
            self._turns.move_to_end(position, last=False)

    def rewind(self, position: Position) -> None:
        """Drop the buffer, and fetch its content again."""
        self.size -= position.buffered
        position.rewind()
        self._turns.pop(position, None)

    def forget(self, position: Position) -> None:
        """Drop everything about a partition that is no longer assigned."""
        self.drop(position)
        self.paused.pop(position, None)

    # -- pausing ------------------------------------------------------------------------------------------------------

    def pause(self, position: Position) -> None:
        """Stop handing out records of the partition, but keep its buffer."""
        self.paused[position] = None
        self._turns.pop(position, None)

    def resume(self, position: Position) -> None:
        self.paused.pop(position, None)
        if position.buffer or position.unraised:
            self.offer(position)

    # -- room ---------------------------------------------------------------------------------------------------------

    def wants(self, position: Position, partitions: int) -> bool:
        """Whether to fetch the partition: it has not reached its end, and there is room in its buffer.

        Args:
            partitions: the number of partitions that share the buffers.
        """
        if position in self.paused or position.fetch_offset >= position.end:
            return False
        if not position.buffer:
            return True
        if position.stuck:
            return False
        share = self._capacity // max(1, partitions)
        ahead = max(self._usual, min(_AHEAD * self._usual, share))
        return position.buffered < ahead

    def room(self, least: int, under_way: int) -> int:
        """The bytes that a Fetch may return while ``under_way`` bytes are in flight; 0 if fewer than ``least``.

        A single batch may be larger than the whole capacity; the whole capacity must then be free.
        """
        least = min(least, self._capacity)
        free = self._capacity - self.size - under_way
        for position in self.paused:
            if free >= least:
                break
            if position.buffer:  # its content is fetched again after `resume`
                free += position.buffered
                self.rewind(position)
        return free if free >= least else 0

    def is_sound(self, position: Position) -> bool:
        """Whether all checksums in the partition's buffer are right."""
        return position.is_sound(self._isolation)

    # -- taking -------------------------------------------------------------------------------------------------------

    def __bool__(self) -> bool:
        """Whether there are records to take, or an error to raise."""
        return bool(self._turns)

    def next(self, only: Container[TopicPartition] | None = None) -> Position | None:
        """The partition whose turn it is; if ``only`` is given, the first in turn that it contains."""
        return next((each for each in self._turns if only is None or each.place in only), None)

    def ahead(self, only: Container[TopicPartition] | None, most: int | None, count: int) -> list[Fetched]:
        """The next ``count`` batches that `next` and `take` would return, up to the first problem; takes none."""
        found: list[Fetched] = []
        turns = [*islice((each for each in self._turns if only is None or each.place in only), count)]
        for turn in range(count):
            turns = [each for each in turns if turn < len(each.buffer) or each.unraised]
            for position in turns:
                if len(found) == count or position.unraised:
                    return found
                fetched = position.buffer[turn]
                if not fetched.is_sound(self._isolation):
                    return found
                if most is not None and not (fetched.fits or fetched.can_be_cut(count)):
                    return found
                found.append(position.parted(turn, most))
                if turn + 1 < len(position.buffer) and not position.buffer[turn + 1].can_wait(len(self._turns)):
                    return found
        return found

    def error(self, position: Position) -> OttlaError | None:
        """The error to raise in the partition's turn, if there is one; returned once."""
        if (error := position.take_error()) is not None:
            del self._turns[position]
        return error

    def take(self, position: Position, most: int | None = None) -> tuple[Fetched | None, OttlaError | None]:
        """Take the partition's next batch, at most ``most`` records, up to a damaged batch; and the damage, if any.

        Records after a damaged batch are fetched again, because the offset at which it ends cannot be trusted.
        """
        damage = position.check(self._isolation)
        if damage is not None and not position.buffer[0].batches:
            self.rewind(position)
            return None, damage
        fetched = position.take(most)
        self.size -= fetched.size
        if damage is not None:
            self.rewind(position)
        elif position.buffer:
            if position.buffer[0].can_wait(len(self._turns)):
                self._turns.move_to_end(position)
        else:
            del self._turns[position]
        return fetched, damage
