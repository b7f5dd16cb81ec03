"""One process of brokerlite with its machine and its disk: started, killed, stopped, started again.

Rules:
- This file does the driver's work in virtual time, as `ottla.brokerlite.serve` does it: requests in, answers out, polls
  at the deadline, chores one by one, a sync of the disk whenever an answer waits for it.
- A kill may come during any operation of the disk. It loses the process's memory, not the page cache. A power cut
  leaves all synced data on the disk, and an arbitrary part of the rest.
- If the disk refuses a start, the start is tried again. Any other failure of a start is a finding.
"""

import random
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from ottla.brokerlite.handlers import SERVED
from ottla.brokerlite.machines.clock import Clock as BrokerClock
from ottla.brokerlite.machines.core import BrokerCore, Call, CloseConnection, HoldConnection, Settings
from ottla.brokerlite.machines.jobs import Job, Work
from ottla.brokerlite.storage.data_folder import DataFolder
from ottla.client_info import ClientInfo
from ottla.codec.frames import RequestHeader
from ottla.codec.wire import api
from ottla.errors import ConfigurationError, KafkaStorageError, RemoteProtocolError
from tests.brokerlite.model_disk import Killed, ModelDisk
from tests.sim.clock import Clock
from tests.sim.data import Place
from tests.sim.history import History
from tests.sim.network import PORT, Link, Network, Reply
from tests.sim.users import Violation

NODE = 1
TODAY = 1_700_000_000_000
"""Milliseconds since 1970 at which each world begins."""
AGAIN = 0.5
"""Seconds until a start that the disk refused is tried again."""
DATA = Path("/data")
RESTART = "a broker does not start"
DRIVER = "the driver of a broker gets an unexpected action"


class Ticket(NamedTuple):
    """The destination of an answer."""

    link: Link
    request: Any
    reply: Reply
    close: Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Manner:
    """How a broker is run.

    Attributes:
        sync: the broker answers once the disk has the data, so the power may be cut.
        topics: name -> number of partitions.
        configs: name -> configurations of topics that have some; the readers of all topics skip these.
        defaults: configurations of all topics.
    """

    sync: bool
    topics: dict[str, int]
    configs: dict[str, dict[str, str]]
    defaults: dict[str, str]
    settings: Settings


class Server:
    """Args: chance: draws delays and ids.

    Attributes:
        core: the machine; after its end the old one, until the next start.
    """

    core: BrokerCore

    def __init__(
        self, clock: Clock, network: Network, history: History, chance: random.Random, disk: ModelDisk, manner: Manner
    ) -> None:
        self.clock, self.network, self._history, self._chance = clock, network, history, chance
        self.disk, self.manner = disk, manner
        self.features: Counter[str] = Counter()
        self.is_up = False
        self.since = 0.0
        """When the process was last started or ended."""
        self.disk_is_well = True
        self.starts = 0
        self.answered: Callable[[str, Any, Any], None] = lambda client, request, answer: None
        """Called with each client, its request and the answer, once the answer is final."""
        self.started: Callable[[], None] = lambda: None
        """Called when the broker is up, before it takes any request."""
        self.written: Callable[[], None] = lambda: None
        """Called after each step that may have written."""
        self._folder: DataFolder
        self._chores: deque[Callable[[], None]] = deque()
        self._connections: dict[Link, tuple[int, ClientInfo]] = {}
        self._connections_ever = 0
        self._syncing = False
        self._ids = random.Random(chance.getrandbits(64))

    # -- the network's calls

    def up(self, node: int) -> bool:
        return node == NODE and self.is_up

    def awake(self, node: int) -> bool:
        return self.up(node)

    def handle(self, node: int, client: str, version: int, message: Any, reply: Reply) -> None:
        raise AssertionError("every request is admitted")

    def admit(self, link: Link, version: int, message: Any, reply: Reply, close: Callable[[str], None]) -> bool:
        """Take a request; see `Network.admit`."""
        key = api(type(message)).key
        header = RequestHeader(api_key=key, api_version=version, correlation_id=0, client_id=link.client.name)
        connection, session = self._connection(link)
        call = Call(connection, session, header, message, self.clock.now, self.timestamp)
        ticket = Ticket(link, message, reply, close)
        try:
            if not self._survives(partial(self.core.handle, ticket, call)):
                return True
        except RemoteProtocolError as error:
            close(str(error))
            return True
        self.written()
        self._pump()
        return True

    def _connection(self, link: Link) -> tuple[int, ClientInfo]:
        if link not in self._connections:
            self._connections_ever += 1
            session = ClientInfo(local_host=f"n{NODE}", local_port=PORT + NODE, peer_host=link.client.name, peer_port=1)
            self._connections[link] = self._connections_ever, session
        return self._connections[link]

    @property
    def timestamp(self) -> int:
        """Milliseconds since 1970."""
        return TODAY + round(self.clock.now * 1000)

    # -- starts and ends

    def start(self) -> None:
        """Start the broker on the disk that the last one has left."""
        if self.is_up:
            return
        self.starts += 1
        self._chores.clear()
        self._connections.clear()
        self._syncing = False
        self._folder = DataFolder(
            DATA, index_interval_bytes=100, sync=self.manner.sync, chore=self._add_chore, disk=self.disk
        )
        try:
            if not self._survives(self._open):
                return
        except (ConfigurationError, KafkaStorageError, OSError) as error:
            if self.disk_is_well:
                raise Violation(RESTART, str(error)) from error
            self.features["a start that the disk refuses"] += 1
            self._say(f"cannot start: {error}")
            self.disk.crash()
            self.clock.later(AGAIN, self.start)
            return
        self.is_up, self.since = True, self.clock.now
        self._say("is up")
        self.started()
        if self._survives(self._make_topics):
            self.written()
            self._pump()
            self._look_for_ends(self.starts)

    def _open(self) -> None:
        self._folder.open(NODE, "sim")
        self.core = BrokerCore(
            self.manner.settings,
            self._folder,
            SERVED,
            BrokerClock.at(self.clock.now, self.timestamp),
            new_id=lambda: UUID(int=self._ids.getrandbits(128), version=4),
            defaults=self.manner.defaults,
        )

    def _make_topics(self) -> None:
        for name, partitions in self.manner.topics.items():
            if name not in self.core.topics.by_name:
                self.core.create_topic(name, partitions, self.manner.configs.get(name, {}))

    def kill(self, why: str) -> None:
        """End the process between two operations of the disk."""
        if self.is_up:
            self._ended(why)

    def cut_power(self) -> None:
        """End the process, and lose unsynced data."""
        self.features["the power is cut"] += 1
        self.kill("loses its power")
        self.disk.power_cut()

    def stop(self) -> bool:
        """Stop the broker cleanly; return whether that worked."""
        self._say("stops")
        try:
            good = self._survives(self._stop)
        except OSError as error:
            self.features["a stop that the disk refuses"] += 1
            self._ended(f"cannot stop in good order: {error}")
            return False
        if good:
            self.features["a clean stop"] += 1
            self._ended("has stopped")
        return good

    def _stop(self) -> None:
        self.core.drain(self.clock.now)
        self._hand_out()
        while (writes := self.core.unsynced) is not None:
            self._folder.begin_flush()()
            self.core.synced(writes, self.clock.now)
            self._hand_out()
        while self._chores:
            self._do_chore()
        self._folder.close()

    def _survives(self, call: Callable[[], object]) -> bool:
        """Make a call during which the process may be killed; return whether it lives."""
        try:
            call()
        except Killed:
            self.features["a kill within an operation of the disk"] += 1
            self._ended("is killed while it writes")
            return False
        return True

    def _ended(self, why: str) -> None:
        self._say(why)
        self.is_up, self.since = False, self.clock.now
        self.disk.crash()
        self.network.crash(NODE)

    def _say(self, what: str) -> None:
        self._history.add("!", "broker", what)

    # -- the driver's part

    def _pump(self) -> None:
        """Send the answers that are ready, and schedule further work."""
        if not self._survives(self._hand_out):
            return
        self.written()
        for job in self.core.jobs():
            self._go_on(self.starts, job, None)
            if not self.is_up:
                return
        if self.core.unsynced is not None and not self._syncing:
            self._begin_sync()
        if (deadline := self.core.deadline) is not None:
            self.clock.at(deadline, partial(self._wake, self.starts, deadline))

    def _hand_out(self) -> None:
        while actions := self.core.poll(self.clock.now):
            for action in actions:
                ticket: Ticket = action.ticket
                if isinstance(action, HoldConnection):  # the network hands in one request of a connection at a time
                    self.features["a request that holds its connection"] += action.held
                    continue
                if isinstance(action, CloseConnection):
                    if action.why == "internal error":
                        raise Violation(DRIVER, "an answer failed")
                    ticket.close(action.why)
                    continue
                if action.message is not None:
                    self.answered(ticket.link.client.name, ticket.request, action.message)
                ticket.reply(None if action.message is None else (action.message, action.version))

    def _wake(self, start: int, deadline: float) -> None:
        if self._is(start) and self.core.deadline == deadline:
            self._pump()

    def _is(self, start: int) -> bool:
        """Whether the process of that start is still running."""
        return self.is_up and self.starts == start

    def _begin_sync(self) -> None:
        self._syncing = True
        writes, work = self.core.unsynced, self._folder.begin_flush()
        assert writes is not None
        self.clock.later(self._chance.uniform(0.0005, 0.02), partial(self._sync, self.starts, writes, work))

    def _sync(self, start: int, writes: int, work: Callable[[], None]) -> None:
        if not self._is(start):
            return
        self._syncing = failed = False
        try:
            if not self._survives(work):
                return
        except OSError as error:
            self.features["a sync that the disk refuses"] += 1
            self._say(f"sync failed: {error}")
            failed = True
        if self._survives(partial(self.core.synced, writes, self.clock.now, failed=failed)):
            self._pump()

    def _go_on(self, start: int, job: Job, refused: OSError | None) -> None:
        """Run the next part of a job on the loop, and later its work as in a thread."""
        if not self._is(start):
            return
        works: list[Work] = []

        def resume() -> None:
            try:
                works.append(self.core.resume(job, self.clock.now, refused))
            except StopIteration:
                self.features["a job in the background is done"] += 1

        if not self._survives(resume):
            return
        if works:
            self.clock.later(self._chance.uniform(0.0, 0.05), partial(self._work_on, start, job, works[0]))
        if refused is not None or not works:
            self._pump()

    def _work_on(self, start: int, job: Job, work: Work) -> None:
        if not self._is(start):
            return
        refused = None
        try:
            if not self._survives(work):
                return
        except OSError as error:
            self.features["a job that the disk refuses"] += 1
            refused = error
        self._go_on(start, job, refused)

    def _add_chore(self, chore: Callable[[], None]) -> None:
        self._chores.append(chore)
        self.clock.later(self._chance.uniform(0.0, 0.1), partial(self._chore_due, self.starts))

    def _chore_due(self, start: int) -> None:
        if self._is(start) and self._chores:
            self._survives(self._do_chore)

    def _do_chore(self) -> None:
        refused = self.disk.refused
        self._chores.popleft()()  # a failed chore goes to the log
        self.features["a chore that the disk refuses"] += self.disk.refused > refused

    def _look_for_ends(self, start: int) -> None:
        """Every 0.2 s, notice connections that have ended and have nothing in flight."""
        if not self._is(start):
            return
        for link in [each for each in self._connections if not (each.open or each.on_its_way or each.queue)]:
            number, _ = self._connections.pop(link)
            hang_up = partial(self.core.disconnected, number, self.clock.now)
            if not self._survives(hang_up):  # it stores released records
                return
            self._pump()
            if not self._is(start):
                return
        self.clock.later(0.2, partial(self._look_for_ends, start))

    # -- for the tests

    def places(self) -> Iterable[Place]:
        topics = self.manner.topics.items()
        return [(name, index) for name, count in topics if name not in self.manner.configs for index in range(count)]
