"""A broker that is killed with SIGKILL again and again while clients work."""

import random
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Self

from tests.brokerlite.running import BrokerProcess
from tests.interop.peers import create_topic
from tests.interop.streams import Streamer
from tests.interop.transfers import PARTITIONS, Passer, Steps, Teller
from tests.patience import HUNG

AT_ONCE = 0.15
"""The share of kills that are followed by a second one, before the broker listens again."""
EVERYBODY = 0.1
"""The share of kills before which each client must have ended a transaction or a record: some recover sooner."""

Worker = Teller | Passer | Streamer


class Storm(ABC):
    """A broker, its clients, and the kills so far; a context manager.

    Args:
        settings: of the broker, as in a server.properties.

    Attributes:
        before_a_kill: the maximum number of transactions or records before a kill.
    """

    before_a_kill: int

    def __init__(
        self,
        folder: Path,
        seed: int,
        steps: Steps,
        topics: Iterable[str],
        partitions: int = PARTITIONS,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        properties = folder / "server.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in (settings or {}).items()))
        self.broker = BrokerProcess(folder / "data", "--group-delay", "0", "--config", str(properties))
        self.kills = 0
        self._rng = random.Random(seed)
        self._steps = steps
        for topic in topics:
            create_topic(self.broker.bootstrap, topic, partitions, internal_segment_bytes="100000")

    @property
    @abstractmethod
    def clients(self) -> Sequence[Worker]:
        """The clients that work in a thread of their own."""

    @property
    def names(self) -> list[str]:
        """The names of all clients that work now, as they count their steps."""
        return [each.name for each in self.clients]

    @abstractmethod
    def finish(self) -> None:
        """Let the clients finish their work."""

    @abstractmethod
    def check(self) -> None:
        """Check that all readers find the right records."""

    @abstractmethod
    def said(self) -> str:
        """The result in a line."""

    def run(self, kills: int, seconds: float) -> None:
        """Kill the broker ``kills`` times, or until ``seconds`` have passed; then let the clients finish their work."""
        over = time.monotonic() + seconds
        for client in self.clients:
            client.start()
        while self.kills < kills and time.monotonic() < over:
            all_come = not self.kills or self._rng.random() < EVERYBODY  # a starting client might give up
            self._steps.await_steps(self._rng.randrange(1, self.before_a_kill), self.names if all_come else ())
            self.kill()
        self._steps.await_steps(1)
        self.finish()
        assert not self._steps.errors, self._steps.errors

    def kill(self) -> None:
        """Kill the broker and start it again, perhaps several times."""
        self.broker.kill()
        self.kills += 1
        while self._rng.random() < AT_ONCE:
            self.broker.start()
            time.sleep(self._rng.uniform(0, 0.5))  # some moment of its start, which gives no signal
            self.broker.kill()
            self.kills += 1
        self.broker.revive()

    def end(self) -> None:
        for client in self.clients:
            client.stop()
            client.end()
        if self.broker.runs:
            self.broker.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


def await_ends(clients: Iterable[Worker]) -> None:
    """Stop clients, and wait until they have ended their work."""
    for client in clients:
        client.stop()
    for client in clients:
        client.join(HUNG)
        assert not client.is_alive(), f"{client.name} did not end"
