"""The blocking driver: the same `ClientCore` in one thread, with a selector and no background work.

Private for now: the Spark reader uses it, because Spark's Python workers are forked and reused, and neither trio nor a
background thread survives that well. The client does not run between calls: a call takes steps until its outcome
is settled.

Theory of operation: while the caller itself waits for something else, such as its sink or its next records, responses
stay unread, so no deadline may pass meanwhile: `paused` stops the clock of all deadlines. Without it, a caller that
waits elsewhere for two minutes would get a timeout although the client never looked for responses.
"""

import random
import socket
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from ottla.errors import OttlaError, reason
from ottla.sdk import calls, mdns
from ottla.sdk.calls.offset_lookups import reachable_offsets
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.consume.partitions.record_sets import READ_UNCOMMITTED, AnyBatch
from ottla.sdk.consume.reading.range_reader import LostRange, OffsetRange, RangeReader
from ottla.sdk.core import ClientCore
from ottla.sdk.drivers.selecting import SelectorLink, SelectorPump
from ottla.sdk.events import Connect, RunInThread
from ottla.sdk.options import Options, announced_name, parse_bootstrap
from ottla.sdk.outcome import Outcome

if TYPE_CHECKING:
    from uuid import UUID

T = TypeVar("T")

_SEARCH = 2.0
"""Seconds for another search by zeroconf, during which everything else waits."""


def _raise(lost: LostRange) -> NoReturn:
    raise lost.error


class BlockingClient(SelectorPump):
    """A client for one thread.

        with BlockingClient("localhost:9092") as client:
            ends = client.offsets({("events", 0): LATEST})

    Args:
        bootstrap: ``host:port``, several separated by commas, or ``zeroconf://name``.
        options: as in `ottla.connect`.

    Raises:
        BrokerUnreachable: no broker answered within `connect_timeout`.
    """

    def __init__(self, bootstrap: str, **options: Any) -> None:
        self._options = Options(**options)
        announced, name = announced_name(bootstrap)
        addresses = mdns.find(name, self._options.connect_timeout) if announced else bootstrap
        find = partial(mdns.find, name, _SEARCH) if announced else None
        core = ClientCore(parse_bootstrap(addresses), self._options, random.Random(), find=find)
        self._away = 0.0
        """Seconds spent in `paused`."""
        super().__init__(core, self._time, "blocking")
        self._kicked = False
        """The next poll is due at once."""
        try:
            self._call(core.connect)
        except BaseException:  # an interrupt included
            self.close()
            raise

    def __enter__(self) -> "BlockingClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the sockets; waits for nothing."""
        super().close()
        self._hang_up_all()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the clock while the caller waits for something else, so that no deadline passes."""
        began = time.monotonic()
        try:
            yield
        finally:
            self._away += time.monotonic() - began

    def _time(self) -> float:
        return time.monotonic() - self._away

    def topic_ids(self, names: Sequence[str] | None) -> dict[str, tuple["UUID", int]]:
        """See `ottla.sdk.calls.topic_ids`."""
        return self._call(lambda now: calls.topic_ids(self.core, names, now))

    def commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit ``offsets`` for a group without members.

        Raises:
            NonEmptyGroup: it has members.
            PartialFailure, BrokerError: some or all partitions failed.
        """
        self._call(lambda now: calls.commit_offsets(self.core, group, offsets, now))

    def offsets(
        self, wanted: Mapping[TopicPartition, int], *, isolation: int = READ_UNCOMMITTED
    ) -> dict[TopicPartition, int]:
        """Per partition, the offset at a timestamp (milliseconds, `EARLIEST` or `LATEST`); -1 if there is none."""
        return self._call(lambda now: calls.offsets(self.core, wanted, now, isolation))

    def reachable_offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | OttlaError]:
        """The same, with an error, after some seconds, in place of each offset that is not available."""
        found = self._call(lambda now: reachable_offsets(self.core, wanted, now))
        return {place: each if isinstance(each, OttlaError) else each.offset for place, each in found.items()}

    def fetch(
        self,
        ranges: Iterable[OffsetRange],
        *,
        isolation: int = READ_UNCOMMITTED,
        on_lost: Callable[[LostRange], int] = _raise,
    ) -> Generator[tuple[OffsetRange, AnyBatch], None, None]:
        """The batches that cover the ranges, as they arrive: all partitions are read together, each in order.

        The first batch of a range may begin before its start, and the last may end after its end: trim them. Offsets
        may be missing (compaction, transactions).

        Args:
            on_lost: called with a range that cannot be read further; returns the offset at which to continue, or
                raises. It may call this client. By default it raises the error in `LostRange`.

        Raises:
            OffsetOutOfRange: a range starts outside the log.
            UnknownTopicOrPartition: a topic was deleted.
            DataLoss: a log ends before its range does, or the topic was recreated.
            TimeoutExpired: no records arrived for `api_timeout`.
        """
        reader = self.do(lambda: RangeReader(self.core, ranges, isolation=isolation))
        try:
            while not reader.done:
                found = self.do(reader.take)
                if found is None:
                    if not reader.done:
                        self._await(self.do(reader.wait))
                elif isinstance(found, LostRange):
                    self.do(partial(reader.go_on, found, on_lost(found)))
                else:
                    for batch in found.batches:
                        began = time.monotonic()  # like `paused`, at a tenth of its cost
                        yield found.range, batch
                        self._away += time.monotonic() - began
        finally:
            self.do(reader.close)
            if self.core.closed is None:
                self.pump()  # otherwise the reader's sockets would stay open until the next call

    # -- calls -------------------------------------------------------------------------------------------------------

    def _call(self, start: Callable[[float], Outcome[T]]) -> T:
        outcome = self.do(lambda: start(self.core.now))
        while not outcome.done:
            self._await(outcome)
        return outcome.result()

    def _await(self, outcome: Outcome[Any]) -> None:
        """Pump; unless that settles ``outcome``, wait for a socket or the core's deadline."""
        self._kicked = False
        self.pump()
        if outcome.done:
            return
        due = self.core.deadline
        if due is None and not self._links:
            raise OttlaError("nothing to wait for: this is a bug in ottla, please report it")
        self._wait(0.0 if self._kicked else None if due is None else max(0.0, due - self.now()))

    # -- calls of a loop -----------------------------------------------------------------------------------------------

    def _runs_here(self) -> bool:
        return True  # there is no loop: any thread may call, one at a time

    def _set_alarm(self, when: float) -> None:
        """Nothing to do: `_await` checks the deadline itself."""

    def _kick(self) -> None:
        self._kicked = True

    def _run_in_thread(self, work: RunInThread) -> None:
        self.tell(work.call())  # this driver has only one thread

    def _dial(self, link: SelectorLink, wanted: Connect) -> None:
        where = wanted.host, wanted.port
        try:
            found = socket.getaddrinfo(*where, type=socket.SOCK_STREAM)
        except UnicodeError:
            self._lost(link, f"{wanted.host!r} is not a host name")
        except OSError as error:
            self._lost(link, reason(error))
        else:
            self._connect_to(link, where, found)
