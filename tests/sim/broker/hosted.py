"""Brokerlite on a model disk, as a world hosts it: the world sees its logs, and strikes the disk and the connections.

The world of `tests.sim.broker.world` tests it; other worlds use it instead of the model cluster.
"""

from collections.abc import Callable
from random import Random
from typing import Any

from ottla.brokerlite.machines.core import BrokerCore, Settings
from ottla.codec.apis.api_versions import ApiVersionsRequest
from ottla.codec.apis.init_producer_id import InitProducerIdResponse
from tests.brokerlite.model_disk import ModelDisk
from tests.sim.broker.faults import NEEDS_SYNC, OF_A_BROKER
from tests.sim.broker.logs import Logs
from tests.sim.broker.server import DATA, NODE, Manner, Server
from tests.sim.broker.views import Cluster
from tests.sim.clock import Clock
from tests.sim.data import Place
from tests.sim.faults import Fault
from tests.sim.history import History
from tests.sim.log import Stored
from tests.sim.network import PORT, Link, Network, Reply


def settings(**others: Any) -> Settings:
    """Settings of the one broker of a world."""
    return Settings(node_id=NODE, cluster_id="sim", host=f"n{NODE}", port=PORT + NODE, **others)


class Hosted:
    """
    Args:
        chance: draws the faults.
        ordered: as for `ModelDisk`.

    Attributes:
        processes: name -> process of a shipped client; `peers`: name -> handwritten client.
        over: all users are done.
        trouble_until: the end of the current fault of the disk.
        appended: called with each batch that is appended and not a duplicate.
        answered: called with each client, its request and the answer, once the answer is final.
        restarted: called with the machine when the broker is up, before it takes any request.
        hides: the broker does not show clients the features of the cluster.
    """

    def __init__(
        self,
        seed: int,
        chance: Random,
        clock: Clock,
        network: Network,
        history: History,
        manner: Manner,
        *,
        ordered: bool,
    ) -> None:
        self.seed, self.chance, self.clock, self.network, self.history = seed, chance, clock, network, history
        self.sync = manner.sync
        self.disk = ModelDisk(Random(f"{seed} disk"), ordered=ordered)
        self.server = Server(clock, network, history, Random(f"{seed} server"), self.disk, manner)
        self.features = network.features = self.server.features
        network.cluster, network.admit = self.server, self._admit
        self.appended: Callable[[Place, Stored], None] = lambda place, stored: None
        self.answered: Callable[[str, Any, Any], None] = lambda client, request, answer: None
        self.restarted: Callable[[BrokerCore], None] = lambda core: None
        self.logs = Logs(self.server.places(), lambda place, stored: self.appended(place, stored))
        self.cluster = Cluster(self.server, self.logs)
        self.server.answered, self.server.started, self.server.written = self._answered, self._started, self._written
        self.processes: dict[str, Any] = {}
        self.peers: dict[str, Any] = {}
        self.over = False
        self.trouble_until = 0.0
        self.hides = False

    def say(self, mark: str, who: str, text: str) -> None:
        self.history.add(mark, who, text)

    @property
    def views(self) -> Any:
        return self.logs.views

    scan = 0.0

    @property
    def well_since(self) -> float:
        """When a fault last hindered the broker's background work."""
        return max(self.server.since, self.trouble_until)

    # -- observation -------------------------------------------------------------------------------------------------

    def _admit(self, link: Link, version: int, message: Any, reply: Reply, close: Callable[[str], None]) -> bool:
        if not (self.hides and isinstance(message, ApiVersionsRequest)):
            return self.server.admit(link, version, message, reply, close)

        def hide(answer: Any) -> None:
            said, spoken = answer
            said.finalized_features, said.finalized_features_epoch = (), -1
            reply((said, spoken))

        return self.server.admit(link, version, message, hide, close)

    def _written(self) -> None:
        if self.server.is_up:
            self.logs.refresh(self.server.core)

    def _answered(self, client: str, request: Any, answer: Any) -> None:
        self.logs.answered(request, answer, self.cluster.ever_named)
        if isinstance(answer, InitProducerIdResponse):  # batches before it belong to the earlier epoch
            self.logs.refresh(self.server.core)
        self.answered(client, request, answer)

    def _started(self) -> None:
        """The broker is up again."""
        self.logs.compare(self.server.core)
        self.restarted(self.server.core)

    # -- faults ------------------------------------------------------------------------------------------------------

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of faults that may strike."""
        return tuple(kind for kind in OF_A_BROKER if self.sync or kind not in NEEDS_SYNC)

    def strike(self, world: Any, fault: Fault) -> object:
        return OF_A_BROKER[fault.kind](self, fault)

    def move_coordinators(self, transactional_id: str | None = None) -> None:
        """Kill the broker, and soon start it again."""
        self.strike(None, Fault(self.clock.now, "kill", 0.02))

    def upgrade(self) -> bool:
        """Show clients the broker's features, from their next connection on."""
        hides, self.hides = self.hides, False
        return hides

    # -- starts and ends ---------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Start it, with its topics and its data folder synced to the disk, before any fault."""
        self.server.start()
        self.server.stop()
        self.disk.sync_folder(DATA.parent)
        self.server.start()

    def calm_down(self) -> None:
        """The faults end on their own."""

    def end(self) -> None:
        """Check that the disk has the logs that were in memory, after a clean stop and after a kill."""
        self.disk.kill_at = None
        for clean in (True, False):
            self._restart(clean)

    def _restart(self, clean: bool) -> None:
        if clean:
            self.server.stop()
        else:
            self.server.kill("is killed")
            if self.sync:
                self.server.cut_power()
        self.server.start()
        self.logs.refresh(self.server.core)
