"""The brokers of a world behind one interface: the model cluster here, or brokerlite, the shipped broker
(`tests.sim.broker.hosted`).

Rules:
- A world sees each log through a `View`; the model's logs and brokerlite's have the same one.
- Before Kafka 3.6 leaders append records that belong to no transaction, and the producer's next transaction commits or
  aborts them (KIP-890). No client can prevent that, so the world collects such records in `ModelBrokers.astray`.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any, Protocol

from ottla.codec.apis.init_producer_id import InitProducerIdResponse
from ottla.codec.records import parse_batch
from ottla.codec.wire import Buffer
from tests.sim.broker.logs import decided
from tests.sim.clock import Clock
from tests.sim.cluster import OFFSETS, ModelCluster
from tests.sim.data import Place
from tests.sim.faults import FAULTS, Fault
from tests.sim.history import History
from tests.sim.log import Stored
from tests.sim.network import Network, Reply
from tests.sim.transactions import ONGOING, STATE

FOUND_OUT = 3.0
"""Seconds after the end of a fault within which the cluster notices it and recovers."""
OUTAGE = 5.5
"""Seconds that an outage lasts at least."""
OF_A_CLUSTER = (
    "cut",
    "move",
    "crash",
    "outage",
    "sleep",
    "cut off",
    "silence",
    "slow",
    "swallow",
    "clog",
    "refuse",
    "freeze",
)
"""The faults of `tests.sim.faults` that concern no group, and lose no acknowledged record."""


class View(Protocol):
    """One log, as a world sees it.

    Attributes:
        stable: the offset up to which every transaction has ended.
        decided: (offset, value) of every record that a read_committed reader has to see.
    """

    @property
    def batches(self) -> Sequence[Stored]: ...

    @property
    def end(self) -> int: ...

    @property
    def stable(self) -> int: ...

    @property
    def decided(self) -> list[tuple[int, bytes]]: ...


class Brokers(Protocol):
    """
    Attributes:
        kinds: the faults that may strike the brokers and their connections.
        features: how often each rare event happened.
        over: all clients are done.
        well_since: when a fault last hindered the brokers' background work.
        scan: seconds from a transaction's timeout within which the coordinator aborts it.
        appended: called with each batch that is appended and not a duplicate.
        answered: called with each client, its InitProducerId and the answer.
    """

    features: Counter[str]
    over: bool
    appended: Callable[[Place, Stored], None]
    answered: Callable[[str, Any, Any], None]

    @property
    def kinds(self) -> tuple[str, ...]: ...

    @property
    def views(self) -> Mapping[Place, View]: ...

    @property
    def well_since(self) -> float: ...

    @property
    def scan(self) -> float: ...

    def strike(self, world: Any, fault: Fault) -> object:
        """Args: world: needs the attributes that the functions of `tests.sim.faults` use; some strike its processes."""

    def move_coordinators(self, transactional_id: str | None = None) -> None:
        """Move the coordinator of one transactional id, or of all; brokerlite's only node stops and comes back."""

    def upgrade(self) -> bool:
        """Switch to version 2 of transactions; return whether the brokers spoke an older one."""

    def begin(self) -> None: ...

    def calm_down(self) -> None:
        """No more faults from now on."""

    def end(self) -> None: ...


class ModelView:
    """One log of the model cluster."""

    def __init__(self, cluster: ModelCluster, place: Place) -> None:
        self._cluster, self._place = cluster, place

    @property
    def batches(self) -> Sequence[Stored]:
        return self._cluster.logs[self._place].batches

    @property
    def end(self) -> int:
        return self._cluster.logs[self._place].end

    @property
    def stable(self) -> int:
        return self._cluster.logs[self._place].stable

    @property
    def decided(self) -> list[tuple[int, bytes]]:
        stable = self.stable
        return [each for each in decided(self.batches)[0] if each[0] < stable]


class ModelBrokers:
    """
    Args:
        version: the version of transactions (KIP-890) with which the cluster starts.

    Attributes:
        astray: values of records that were appended and belong to no transaction.
    """

    scan = 10.0

    def __init__(
        self,
        seed: int,
        clock: Clock,
        network: Network,
        history: History,
        topics: dict[str, int],
        nodes: int,
        release: str,
        version: int,
    ) -> None:
        self.clock = clock
        self.cluster = ModelCluster(
            clock, Random(seed + 2), network, history, topics, nodes, release, transactions=True
        )
        self.cluster.transaction_version = version
        network.cluster = self
        self.features = network.features = self.cluster.data.features = self.cluster.transactions.features
        self._append, self.cluster.append = self.cluster.append, self._appends  # type: ignore[method-assign]
        self.up, self.awake = self.cluster.up, self.cluster.awake
        self.appended: Callable[[Place, Stored], None] = lambda place, stored: None
        self.answered: Callable[[str, Any, Any], None] = lambda client, request, answer: None
        self.over = False
        self.well_since = 0.0
        self.astray: set[bytes] = set()

    # -- observation -------------------------------------------------------------------------------------------------

    def handle(self, node: int, client: str, version: int, message: Any, reply: Reply) -> None:
        def answered(answer: Any) -> None:
            if isinstance(answer, InitProducerIdResponse):
                self.answered(client, message, answer)
            reply(answer)

        self.cluster.handle(node, client, version, message, answered)

    def _appends(self, place: Place, records: Buffer) -> tuple[int, int, int]:
        log = self.cluster.logs[place]
        before = len(log.batches)
        result = self._append(place, records)
        if len(log.batches) > before:
            if not self.cluster.verifies and not self._belongs(place, log.batches[-1]):
                self.features["a batch is appended that belongs to no transaction"] += 1
                self.astray |= {record.value or b"" for record in parse_batch(records).records()}
                self.clock.later(self.scan, partial(self._abort_hanging, place))
            else:
                self.appended(place, log.batches[-1])
        return result

    def _belongs(self, place: Place, batch: Stored) -> bool:
        for known in self.cluster.transactions.known.values():
            if (known.producer_id, known.epoch) == batch.producer:
                return known.state == ONGOING and place in known.places
        return not batch.transactional

    @property
    def views(self) -> Mapping[Place, View]:
        places = [place for place in self.cluster.logs if place[0] not in (OFFSETS, STATE)]
        return {place: ModelView(self.cluster, place) for place in places}

    # -- faults ------------------------------------------------------------------------------------------------------

    @property
    def kinds(self) -> tuple[str, ...]:
        return OF_A_CLUSTER

    def strike(self, world: Any, fault: Fault) -> object:
        self.well_since = max(self.well_since, self.clock.now + max(fault.seconds, OUTAGE) + FOUND_OUT)
        return FAULTS[fault.kind](world, fault)

    def move_coordinators(self, transactional_id: str | None = None) -> None:
        self.well_since = max(self.well_since, self.clock.now + FOUND_OUT)
        if transactional_id is None:
            self.cluster.move_some([place for place in self.cluster.leaders if place[0] in (STATE, OFFSETS)])
        else:
            self.cluster.move_some([self.cluster.transactions.place(transactional_id)])

    def upgrade(self) -> bool:
        """Clients learn the new version when they connect."""
        upgrades = self.cluster.epochs_rise and self.cluster.transaction_version < 2
        if upgrades:
            self.cluster.transaction_version = 2
        return upgrades

    # -- starts and ends ---------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """The model cluster needs no start."""

    def calm_down(self) -> None:
        self.cluster.transactions.reluctance = 0.0

    def end(self) -> None:
        """Abort all hanging transactions."""
        for place in self.cluster.logs:
            self._abort_hanging(place)

    def _abort_hanging(self, place: Place) -> None:
        """Abort, as an administrator, transactions that the coordinator does not know, and so will not end."""
        log, known = self.cluster.logs[place], self.cluster.transactions.known.values()
        for producer_id, state in list(log.producers.items()):
            ends_itself = any(each.producer_id == producer_id and place in each.places for each in known)
            if state.ongoing is None or self.cluster.verifies or ends_itself:
                continue
            log.mark(
                (producer_id, state.epoch),
                commits=False,
                coordinator_epoch=state.coordinator_epoch,
                leader_epoch=self.cluster.leaders[place].epoch,
                rises=False,
            )
            log.high_watermark = log.end
