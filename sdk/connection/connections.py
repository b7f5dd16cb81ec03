"""All connections of a client, and facts about the nodes behind them.

Rules:
- A connection is identified by its node and its channel. A broker serves the requests of a connection one by one, so
  requests that may wait there have other channels: each consumer's fetches (`FETCH`, with a number), Produce, which
  waits for replicas (`PRODUCE`), and each group member's JoinGroup. All others use `GENERAL`.
- A connection is opened when there is a request for it, or in advance by `open`; it is closed when there has been none
  for long.
- A machine that stops closes no sockets, and requests to it would wait until they time out. So if a node has not
  answered for five seconds, the metadata are refreshed from another node; if the cluster no longer has the node, its
  connections are closed, and waiting requests go to the new leaders. (Java waits.)
- Nodes that have left the cluster are forgotten, with their connections and metrics, once no request is in flight.
- The cost of `poll` does not grow with idle connections: it has a set of connections with work, and a heap of
  deadlines.

Source: NetworkClient.java, Selector.java, ClusterConnectionStates.java.
"""

import math
from collections.abc import Callable, Collection, Container, Iterator, Mapping
from typing import TYPE_CHECKING

from ottla.addresses import format_address
from ottla.sdk.connection.connection import Connection, ConnectionState
from ottla.sdk.connection.credentials import Credentials
from ottla.sdk.connection.exchange import Exchange
from ottla.sdk.connection.outages import Trouble
from ottla.sdk.connection.peer import Peer
from ottla.sdk.connection.versions import common
from ottla.sdk.events import (
    GENERAL,
    Action,
    Connected,
    Filled,
    Key,
    Lost,
    Node,
    Received,
    Written,
)
from ottla.sdk.logs import logger
from ottla.sdk.metrics import Metrics
from ottla.sdk.options import Options
from ottla.sdk.outcome import Outcome
from ottla.sdk.timers import Timer, Timers

if TYPE_CHECKING:
    from random import Random  # a machine is given its randomness

log = logger("ottla.sdk")

UNANSWERED_LIMIT = 5.0
"""Seconds without an answer after which a node may be dead; a Fetch may also take its wait."""

ConnectionEvent = Connected | Written | Received | Filled | Lost


class Connections:
    """The connections of one client.

    Args:
        timers: call back when a connection has to be polled.
        actions: collects actions for the driver.
        suspect: called with ``now`` when a connection broke, or a node has not answered for long: newer metadata may
            show why.

    Attributes:
        busy: connections that may have work (an ordered set: replays must not depend on hashes).
    """

    def __init__(
        self,
        options: Options,
        metrics: Metrics,
        rng: "Random",
        timers: Timers,
        actions: list[Action],
        suspect: Callable[[float, float], None],
    ) -> None:
        self._options, self._metrics, self._rng = options, metrics, rng
        self._timers, self._actions, self._suspect = timers, actions, suspect
        self.credentials = Credentials(options, rng, timers, actions, self._wake_all)
        self._peers: dict[int, Peer] = {}
        self._connections: dict[Key, Connection] = {}
        self.busy: dict[Key, None] = {}
        self._watched: dict[Key, Timer] = {}
        """The timers of connections with a deadline."""
        self._finishing: dict[str, Outcome[None]] = {}
        """By channel, the outcome that is settled when the brokers have closed its connections."""
        self._liveness_check: Timer | None = None

    # -- the driver's side -------------------------------------------------------------------------------------------

    def poll(self, now: float) -> None:
        """Poll one of the `busy` connections."""
        key = next(iter(self.busy))
        del self.busy[key]
        if connection := self._connections.get(key):
            self._actions += connection.poll(now)
            self._watch(key, connection)

    def handle(self, event: ConnectionEvent, now: float) -> None:
        connection = self._connections.get(event.key)
        if connection is None:
            return
        match event:
            case Written():
                self._actions += connection.written(now)
                if connection.requests.in_flight:
                    return  # responses are still awaited: the deadline is unchanged
            case Received(data=data):
                self._actions += connection.received(data, now)
            case Filled(count=count):
                self._actions += connection.filled(count, now)
            case Connected():
                self._actions += connection.connected(now)
            case Lost(why=why):
                connection.lost(why, now)
                self.busy[event.key] = None
                self._check_finished(event.key[1])
        self._watch(event.key, connection)

    def room(self, key: Key) -> memoryview | None:
        """The buffer for the rest of a large response, if one is under way."""
        connection = self._connections.get(key)
        return connection.room if connection else None

    # -- requests ----------------------------------------------------------------------------------------------------

    def submit(self, node: Node, exchange: Exchange, now: float, channel: str = GENERAL) -> None:
        """Send a request to ``node``, at the given address."""
        connection = self._connection(node, now, channel)
        connection.submit(exchange, now)
        self.busy[connection.key] = None
        if self._liveness_check is None:
            self._liveness_check = self._timers.add(now + UNANSWERED_LIMIT, self._check_liveness)

    def open(self, node: Node, now: float, channel: str) -> None:
        """Connect before there is a request."""
        connection = self._connection(node, now, channel)
        connection.open(now)
        self.busy[connection.key] = None

    def _connection(self, node: Node, now: float, channel: str) -> Connection:
        peer = self._peer(node, now)
        key = (node.id, channel)
        connection = self._connections.get(key)
        if connection is None:
            connection = self._connections[key] = Connection(key, peer, self._options.client_id)
        return connection

    def connected(self, node_id: int) -> bool:
        """Whether a request to the node would go out at once, on the ordinary channel."""
        connection = self._connections.get((node_id, GENERAL))
        return connection is not None and connection.state is ConnectionState.READY

    def usual_cause(self, node_id: int) -> str:
        """The usual cause if a node does not answer, to follow the reason; empty if there is none."""
        some = (each.usual_cause for key, each in self._connections.items() if key[0] == node_id)
        return next(filter(None, some), "")

    def works(self, node_id: int) -> bool:
        """Whether a connection to the node is ready."""
        return any(each.state is ConnectionState.READY for key, each in self._connections.items() if key[0] == node_id)

    def muted_until(self, node_id: int, channel: str) -> float:
        """Until when a throttling node wants no requests on a connection; in the past if it does not throttle."""
        connection = self._connections.get((node_id, channel))
        return connection.muted_until if connection is not None else -math.inf

    def heard_at(self, node_id: int, channel: str) -> float:
        """When the last bytes arrived on a connection."""
        connection = self._connections.get((node_id, channel))
        return connection.heard_at if connection is not None else -math.inf

    def least_loaded(self, but: Container[int]) -> Node | None:
        """The least loaded connected node on the ordinary channel, without the nodes in ``but``."""
        ready = [
            each
            for key, each in self._connections.items()
            if key[1] == GENERAL and each.state is ConnectionState.READY and key[0] not in but
        ]
        return min(ready, key=lambda each: (each.load, each.key)).peer.node if ready else None

    def supports(self, node_id: int, request: type) -> range | None:
        """The versions of a request that both the node and the client speak: an empty range if there are none.

        ``None`` until the node has sent its versions: then `Exchange.build` and `Exchange.versions` decide.
        """
        peer = self._peers.get(node_id)
        return None if peer is None or peer.versions is None else common(request, None, peer.versions)

    def feature(self, name: str) -> int:
        """The level of a finalized feature of the cluster, from the newest report of any node; 0 if it is off, or
        unknown."""
        newest = max((peer.features for peer in self._peers.values()), key=lambda each: each.epoch, default=None)
        return newest.levels.get(name, 0) if newest else 0

    def peer(self, node_id: int) -> Peer | None:
        """The peer of a node, if there ever was a request to it."""
        return self._peers.get(node_id)

    def troubles(self, now: float) -> dict[int, Trouble]:
        """The nodes that cannot be reached, or that do not answer."""
        # If one connection ended, for example an idle one, another may still work.
        working = {node_id for (node_id, _), each in self._connections.items() if each.state is ConnectionState.READY}
        found = {
            node_id: (peer.silent_since(peer.since), peer.trouble)
            for node_id, peer in self._peers.items()
            if peer.trouble and node_id not in working
        }
        requests: dict[int, int] = {}
        for (node_id, _), each in self._connections.items():
            requests[node_id] = requests.get(node_id, 0) + each.needed_for
            if trouble := each.trouble(now):
                found[node_id] = min(found.get(node_id, trouble), trouble)
        return {key: Trouble(self._peers[key].node, *each, requests.get(key, 0)) for key, each in found.items()}

    def explain(self, now: float) -> Iterator[str]:
        """The connections' waits, as lines for people."""
        for connection in self._connections.values():
            yield from connection.explain(now)

    # -- nodes that come, move and go --------------------------------------------------------------------------------

    def update(self, nodes: Mapping[int, Node], seeds: Collection[int], now: float) -> None:
        """Adopt the nodes of new metadata, and the ids of the bootstrap addresses: move, give up and forget nodes."""
        for node in nodes.values():
            if node.id in self._peers:
                self._peer(node, now)
        for key in self._unanswered(now):
            if key[0] not in nodes:
                self._give_up(key, "the node does not answer, and has left the cluster", now)
        gone = [each for each in self._peers if each not in nodes and each not in seeds]
        for node_id in gone:
            if not any(each.load for key, each in self._connections.items() if key[0] == node_id):
                self._forget(node_id, now)

    def give_up(self, node_id: int, why: str, now: float, channel: str | None = None) -> None:
        """Close the connections to a node, or one of them, as failed: the next attempt comes after a pause."""
        for key in [key for key in self._connections if key[0] == node_id and channel in (None, key[1])]:
            self._give_up(key, why, now)

    def give_up_all(self, why: str, now: float) -> None:
        for key in list(self._connections):
            self._give_up(key, why, now)

    def finish(self, channel: str, now: float) -> Outcome[None]:
        """Send nothing more on a channel; settled when the brokers have closed its connections."""
        if finished := self._finishing.get(channel):
            return finished
        finished = self._finishing[channel] = Outcome()
        for key in [key for key in self._connections if key[1] == channel]:
            self._actions += self._connections[key].finish(now)
        self._check_finished(channel)
        return finished

    def _check_finished(self, channel: str) -> None:
        finished = self._finishing.get(channel)
        if finished and all(
            each.state is ConnectionState.DOWN for key, each in self._connections.items() if key[1] == channel
        ):
            del self._finishing[channel]
            finished.succeed(None)

    def retire(self, channel: str, now: float) -> None:
        """Close the connections of a channel that is no longer used."""
        if finished := self._finishing.pop(channel, None):
            finished.succeed(None)
        for key in [key for key in self._connections if key[1] == channel]:
            self._close(key, now)

    def close(self, now: float) -> None:
        """Fail every request. The driver closes the sockets."""
        for connection in list(self._connections.values()):
            connection.retire(now)

    def _peer(self, node: Node, now: float) -> Peer:
        """The peer of the node, with the address updated."""
        peer = self._peers.get(node.id)
        if peer is None:
            peer = self._peers[node.id] = Peer(
                node, self._options, self._metrics, self._rng, self.credentials, self._failed
            )
        elif peer.node != node and peer.moved(node):
            log.info("node has a new address", extra={"node": node.id, "address": format_address(node.host, node.port)})
            for key, connection in list(self._connections.items()):
                if key[0] == node.id:
                    self._actions += connection.moved(now)
                    self.busy[key] = None
        return peer

    def _failed(self, now: float) -> None:
        """A connection broke: leaders may have moved, or the whole cluster."""
        self._suspect(now, self._options.retry_backoff)

    def _give_up(self, key: Key, why: str, now: float) -> None:
        self._actions += self._connections[key].give_up(why, now)
        self.busy[key] = None

    def _close(self, key: Key, now: float) -> None:
        connection = self._connections.pop(key)
        if (watched := self._watched.pop(key, None)) is not None:
            watched.cancel()
        self.busy.pop(key, None)
        self._actions += connection.retire(now)

    def _forget(self, node_id: int, now: float) -> None:
        for key in [key for key in self._connections if key[0] == node_id]:
            self._close(key, now)
        self._peers.pop(node_id).traffic.remove()

    # -- time --------------------------------------------------------------------------------------------------------

    def _check_liveness(self, now: float) -> None:
        """Refresh metadata, from other nodes, if a node no longer answers."""
        working = any(each.requests.in_flight for each in self._connections.values())
        self._liveness_check = self._timers.add(now + UNANSWERED_LIMIT / 2, self._check_liveness) if working else None
        if self._unanswered(now):
            self._suspect(now, 0.0)

    def _unanswered(self, now: float) -> list[Key]:
        """Connections to nodes of the cluster that have not answered for too long."""
        unanswered = [key for key, each in self._connections.items() if each.unanswered_for(now) >= UNANSWERED_LIMIT]
        return [key for key in unanswered if key[0] >= 0]

    def _watch(self, key: Key, connection: Connection) -> None:
        """Poll the connection at its deadline; an earlier timer is enough, because its poll sets the next one."""
        due, watched = connection.deadline, self._watched.get(key)
        if due is None or (watched is not None and due >= watched.when):
            return
        if watched is not None:
            watched.cancel()
        self._watched[key] = self._timers.add(due, lambda now: self._wake(key))

    def _wake_all(self) -> None:
        self.busy |= dict.fromkeys(self._connections)

    def _wake(self, key: Key) -> None:
        del self._watched[key]
        self.busy[key] = None
