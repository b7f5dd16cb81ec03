"""What is fetched and not taken yet: how much it may be, and whose turn it is.

Rules:
- Buffers are bounded together, by `fetch_buffer_bytes`, what is under way included; a single batch may exceed that.
  What a paused partition has buffered is kept until the others need the room.
- Partitions take turns: one with several answers buffered goes to the end after each. One in the middle of a batch that
  stays open meanwhile keeps its turn where the memory does not suffice for such a batch of every partition.
- The error of a partition that cannot be read on has its turn, too, and is raised in it, once.

Source: FetchBuffer.java, FetchCollector.java.
"""

from collections import OrderedDict
from collections.abc import Container
from itertools import islice

from ottla.errors import OttlaError
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.consume.positions import Fetched, Position
from ottla.sdk.consume.record_sets import AnyBatch
from ottla.sdk.options import Options

_AHEAD = 4
"""Answers that a partition may have buffered where there is room for all."""


class FetchBuffers:
    """The buffers of one fetcher, all partitions together."""

    def __init__(self, options: Options, isolation: int) -> None:
        self._capacity, self._usual = options.fetch_buffer_bytes, options.partition_max_bytes
        self._memory, self._isolation = options.fetch_batch_memory, isolation
        self.size = 0
        """Bytes in all buffers."""
        self._turns: OrderedDict[Position, None] = OrderedDict()
        """Partitions with something to take, or an error to raise, in the order in which the user gets them."""
        self._paused: dict[Position, None] = {}

    # -- what comes in, and goes unread -------------------------------------------------------------------------------

    def add(self, position: Position, batches: list[AnyBatch], visible: list[AnyBatch], size: int) -> Fetched | None:
        """Take in what follows the partition's `fetch_offset`, ``size`` bytes; what of it is new to take."""
        fetched = position.add(batches, visible, size, self._memory)
        if fetched is not None:
            self.size += fetched.size
            self.offer(position)
        return fetched

    def offer(self, position: Position) -> None:
        """The partition has something to take, or an error to raise."""
        if not position.paused:
            self._turns.setdefault(position)

    def drop(self, position: Position) -> None:
        """Forget what is buffered of the partition, and whatever is under way."""
        self.size -= position.buffered
        position.drop()
        self._turns.pop(position, None)

    def put_back(self, position: Position, fetched: Fetched) -> None:
        """What was taken last is the next again; it is read once more where something was skipped behind it."""
        follows = position.position == fetched.next_offset
        position.position, position.position_epoch = fetched.first_offset, -1
        if not follows:
            self.rewind(position)
            return
        position.buffer.appendleft(fetched)
        position.buffered += fetched.size
        self.size += fetched.size
        self.offer(position)
        if position in self._turns:
            self._turns.move_to_end(position, last=False)

    def rewind(self, position: Position) -> None:
        """Drop what is buffered, and have it read again."""
        self.size -= position.buffered
        position.rewind()
        self._turns.pop(position, None)

    def forget(self, position: Position) -> None:
        """The partition is not read any more."""
        self.drop(position)
        self._paused.pop(position, None)

    # -- pausing ------------------------------------------------------------------------------------------------------

    @property
    def paused(self) -> list[TopicPartition]:
        """The partitions that are paused, sorted."""
        return sorted(each.place for each in self._paused)

    def pause(self, position: Position) -> None:
        """Hand out nothing of the partition; what is buffered is kept."""
        self._paused[position] = None
        position.paused = True
        self._turns.pop(position, None)

    def resume(self, position: Position) -> None:
        self._paused.pop(position, None)
        position.paused = False
        if position.buffer or position.unraised:
            self.offer(position)

    # -- room ---------------------------------------------------------------------------------------------------------

    def wants(self, position: Position, partitions: int) -> bool:
        """The partition, one of so many, is to be fetched: it has not reached its end, and its buffer has room."""
        if position.paused or position.fetch_offset >= position.end:
            return False
        if not position.buffer:
            return True
        if position.stuck:
            return False
        share = self._capacity // max(1, partitions)
        ahead = max(self._usual, min(_AHEAD * self._usual, share))
        return position.buffered < ahead

    def room(self, least: int, under_way: int) -> int:
        """Bytes that a Fetch may bring, with so many under way; 0 where they are fewer than ``least``.

        A single batch may be larger than all the room there is: it then gets all of it.
        """
        least = min(least, self._capacity)
        free = self._capacity - self.size - under_way
        for position in self._paused:
            if free >= least:
                break
            if position.buffer:  # is fetched again when it is resumed
                free += position.buffered
                self.rewind(position)
        return free if free >= least else 0

    def is_sound(self, position: Position) -> bool:
        """No checksum of what is buffered of the partition is wrong."""
        return position.is_sound(self._isolation)

    # -- taking -------------------------------------------------------------------------------------------------------

    def __bool__(self) -> bool:
        """There is something to take, or an error to raise."""
        return bool(self._turns)

    def next(self, only: Container[TopicPartition] | None = None) -> Position | None:
        """The partition whose turn it is; of these only, if any are given."""
        return next((each for each in self._turns if only is None or each.place in only), None)

    def ahead(self, only: Container[TopicPartition] | None, most: int | None, count: int) -> list[Fetched]:
        """What `next` and `take` are about to give, at most so many, as far as nothing is wrong; it is not taken."""
        found: list[Fetched] = []
        turns = [*islice((each for each in self._turns if only is None or each.place in only), count)]
        for turn in range(count):
            turns = [each for each in turns if turn < len(each.buffer) or each.unraised]
            for position in turns:
                if len(found) == count or position.unraised or not position.is_sound_at(turn, self._isolation):
                    return found
                fetched = position.buffer[turn]
                if most is not None and not (fetched.fits or fetched.can_be_cut(count)):
                    return found
                found.append(position.parted(turn, most))
                if turn + 1 < len(position.buffer) and not position.buffer[turn + 1].can_wait(len(self._turns)):
                    return found
        return found

    def error(self, position: Position) -> OttlaError | None:
        """The error that is to be raised now that it is the partition's turn, once."""
        if not position.unraised:
            return None
        position.unraised = False
        del self._turns[position]
        return position.trouble

    def take(self, position: Position, most: int | None = None) -> tuple[Fetched | None, OttlaError | None]:
        """What is next of the partition, ``most`` records, up to a damaged batch; and what is wrong with that.

        What follows damage is to be fetched again: where a damaged batch ends cannot be trusted.
        """
        damage = position.check(self._isolation)
        if damage is not None and not position.buffer[0].batches:
            self.rewind(position)
            return None, damage
        fetched = position.take(most)
        self.size -= fetched.size
        if damage is not None:
            fetched.size = sum(len(each.data) for each in fetched.batches)
            self.rewind(position)
        elif position.buffer:
            if position.buffer[0].can_wait(len(self._turns)):
                self._turns.move_to_end(position)
        else:
            del self._turns[position]
            position.stuck = False
        return fetched, damage
