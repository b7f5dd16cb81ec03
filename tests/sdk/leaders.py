"""Leaders of partitions, for tests of a fetcher on the real `ClientCore`, in virtual time.

They are the model cluster of the simulator, without its chance. ``versions`` says which APIs the nodes serve; `bend`
may change or drop any answer.
"""

from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from ottla.codec import frames
from ottla.sdk.events import Key
from ottla.sdk.options import Options
from tests.sim.calm import CalmCluster, Log
from tests.sim.data import Place, Session
from tests.sim.wire import Link, Wire

PIECE = 40
"""Bytes."""

NEW = {1: (4, 18), 2: (1, 11), 3: (1, 13), 18: (0, 3), 23: (2, 4)}
"""The versions that Kafka 4.3 serves of the APIs that a fetcher uses."""


class Leaders(Wire):
    """A cluster and one client of it. The nodes are 1 to ``nodes``; a connection needs 1 ms in each direction.

    Attributes:
        prefer: the replicas that leaders recommend.
        room_for_sessions: whether a node has room for another Fetch session.
        by_rack: whether they recommend them only to readers with a rack, and not to others by their address.
        hide: nodes that refuse connections.
        mute: nodes that neither accept nor refuse connections.
        drip: seconds between two pieces of an answer, if it is sent in pieces.
    """

    def __init__(
        self,
        topics: dict[str, int],
        *,
        nodes: int = 1,
        versions: Mapping[int, tuple[int, int]] | None = None,
        options: Options | None = None,
    ) -> None:
        super().__init__(options)
        self.cluster = CalmCluster(self.clock, topics, nodes, versions or NEW)
        self.cluster.data.nearest = self._nearest
        self.cluster.data.full = lambda: not self.room_for_sessions
        self.requests: list[tuple[int, int, Any]] = []
        """Node, version, message."""
        self.bend: Callable[[int, Any, Any], Any] = lambda node, request, answer: answer
        self.room_for_sessions = True
        self.prefer: dict[Place, int] = {}
        self.by_rack = True
        self.hide: Callable[[int], bool] = lambda node: False
        self.mute: Callable[[int], bool] = lambda node: False
        self.drip = 0.0

    @property
    def logs(self) -> dict[Place, Log]:
        return {place: Log(self.cluster, place) for place in self.cluster.places}

    @property
    def ids(self) -> dict[str, UUID]:
        return self.cluster.ids

    @property
    def sessions(self) -> dict[tuple[int, int], Session]:
        """Node and id -> session."""
        held = self.cluster.data.sessions
        return {(node, number): each for node in held for number, each in held[node].items()}

    def drop_sessions(self) -> None:
        self.cluster.data.sessions.clear()

    def asked(self, kind: type) -> list[Any]:
        """The requests of this kind so far."""
        return [message for _, _, message in self.requests if isinstance(message, kind)]

    def _nearest(self, node: int, place: Place, rack: str) -> int:
        near = self.prefer.get(place, -1) if rack or not self.by_rack else -1
        return -1 if near == node else near

    def accepts(self, link: Link) -> bool | None:
        return None if self.mute(link.node) else not self.hide(link.node)

    def serve(self, key: Key, link: Link, frame: bytes, reply: Callable[[bytes | None], None]) -> None:
        request = frames.parse_request(frame)
        version, message = request.header.api_version, request.message
        self.requests.append((link.node, version, message))

        def answered(answer: Any) -> None:
            said, wrote = answer if isinstance(answer, tuple) else (answer, version)
            said = self.bend(link.node, message, said)
            data = None if said is None else frames.build_response(said, wrote, request.header.correlation_id)
            if data is None or not self.drip:
                reply(data)
                return
            for number, at in enumerate(range(0, len(data), PIECE)):
                self.deliver(key, link, data[at : at + PIECE], number * self.drip)
            reply(None)

        self.cluster.handle(link.node, "client", version, message, answered)
