"""Idempotent producers that send without a pause, and the check of their records: each once, in order, and at the
offset of its receipt.

A stream has a topic of its own. Its records are numbers, and go to the partitions in turn.
"""

import threading
from collections.abc import Iterable

from tests.interop.lines import Message, Outcome, Received
from tests.interop.peers import Client, Producing
from tests.interop.transfers import PARTITIONS, Steps

WINDOW = 2_000
"""The maximum number of records without a known outcome: enough to keep a producer busy."""
AT_ONCE = 100
"""Records between two checks of the window."""


class Streamer(threading.Thread):
    """A producer that is always busy, and its outcomes.

    Args:
        name: also of the topic.
        pause: seconds between `AT_ONCE` records, for consumers that are slower than a producer.
    """

    def __init__(
        self,
        client: Client,
        bootstrap: str,
        name: str,
        steps: Steps,
        *,
        partitions: int = PARTITIONS,
        pause: float = 0.0,
    ) -> None:
        super().__init__(name=name, daemon=True)
        self._partitions, self._pause = partitions, pause
        self.sent = 0
        self.outcomes: list[Outcome] = []
        self._steps = steps
        self._over, self._ended = threading.Event(), False
        self._room = threading.Semaphore(WINDOW)
        self._producer: Producing = client.producing(
            bootstrap, {**client.idempotence, **client.soon_back}, self._settled
        )

    def _settled(self) -> None:
        self._room.release()
        self._steps.step(self.name)

    def stop(self) -> None:
        """Stop sending, and wait for the outcomes."""
        self._over.set()

    def end(self) -> None:
        """Kill its program; errors no longer count."""
        self._ended = True
        self._over.set()
        self._producer.__exit__(None, None, None)

    def run(self) -> None:
        try:
            while not self._over.is_set():
                for _ in range(AT_ONCE):
                    if not self._room.acquire(timeout=1.0):
                        break  # the broker is down
                    self._producer.send(self.message(self.sent))
                    self.sent += 1
                self._producer.flush()
                self._producer.check_runs()
                self._over.wait(self._pause)
            self.outcomes = self._producer.finish()
        except BaseException as error:
            if not self._ended:
                self._steps.failed(error)
                raise

    def said(self) -> str:
        """The last part of its program's standard error."""
        return self._producer.said()

    def message(self, number: int) -> Message:
        return Message(self.name, None, b"%d" % number, partition=number % self._partitions)

    def check(self, read: Iterable[Received]) -> None:
        """Check the records that a reader got from all partitions.

        Raises:
            AssertionError: records are lost, repeated, out of order, or at other offsets.
        """
        assert len(self.outcomes) == self.sent and not (errors := [each for each in self.outcomes if each.error]), (
            errors
        )
        there: list[list[Received]] = [[] for _ in range(self._partitions)]
        for record in read:
            there[record.partition].append(record)
        for partition, records in enumerate(there):
            expected = range(partition, self.sent, self._partitions)
            found = [int(record.value or b"") for record in records]
            lost, twice = set(expected) - set(found), len(found) - len(set(found))
            assert not lost and not twice, (
                f"{self.name}-{partition}: {twice} twice, {len(lost)} lost: {sorted(lost)[:9]}"
            )
            assert found == list(expected), f"{self.name}-{partition}: out of order"
            told = [self.outcomes[number].offset for number in expected]
            assert told == [record.offset for record in records], f"{self.name}-{partition}: elsewhere than told"
