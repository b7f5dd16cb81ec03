"""A core whose group requests the test answers by hand, one by one, without a socket or a clock.

The requests that every client sends first (ApiVersions, Metadata, FindCoordinator) are answered automatically.
"""

import random
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from ottla.codec import frames
from ottla.codec.apis.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
)
from ottla.codec.apis.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.codec.apis.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.sdk.core import ClientCore
from ottla.sdk.events import Key
from ottla.sdk.options import Options
from tests.sim.wire import Link, Wire

M = TypeVar("M")

VERSIONS = {1: (4, 11), 2: (1, 5), 3: (1, 12), 8: (0, 9), 9: (0, 7), 10: (0, 3)}
VERSIONS |= {0: (3, 12), 22: (0, 5), 24: (0, 3), 25: (0, 3), 26: (0, 5), 28: (0, 5)}
VERSIONS |= {11: (0, 9), 12: (0, 4), 13: (0, 5), 14: (0, 5), 18: (0, 3)}
"""API key -> lowest and highest version."""


@dataclass(eq=False)
class Asked:
    """A request without an answer yet."""

    key: Key
    link: Link
    message: Any
    version: int
    correlation_id: int


class Coordinator(Wire):
    """One node, which leads all partitions but those in `leaders`, and coordinates all groups unless `home` is another.

    Args:
        topics: the number of partitions of each.
        more: APIs that it serves beyond `VERSIONS`.
        group_version: the finalized level of the feature `group.version`.

    Attributes:
        transactions: the transaction protocol version (KIP-890); clients learn of a change when they connect.
        metadata_requests: how many Metadata requests were answered.
        slow: Metadata requests wait until `catch_up`.
        racks: the rack of each live node.
        replicas: the nodes that have each partition.
        leaders: the leader of each partition that node 1 does not lead.
        ids: the topics with an id of their own.
    """

    def __init__(
        self,
        topics: dict[str, int],
        options: Options | None = None,
        *,
        transactions: int = 1,
        more: dict[int, tuple[int, int]] | None = None,
        group_version: int = 0,
    ) -> None:
        super().__init__(core=ClientCore([("one", 9001)], options or Options(), random.Random(1)))
        self.topics = topics
        self._versions = VERSIONS | (more or {})
        self.transactions, self._group_version = transactions, group_version
        self.waiting: list[Asked] = []
        self.lookups = 0
        self.metadata_requests = 0
        self.home = (1, "one", 9001)
        """The coordinator: node id, host and port."""
        self.reachable: bool | None = True
        """Whether the node accepts connections; ``None``: they wait until `accept`."""
        self.slow = False
        self.racks: dict[int, str | None] = {1: None}
        self.replicas: tuple[int, ...] = ()
        self.leaders: dict[tuple[str, int], int] = {}
        self.ids: dict[str, uuid.UUID] = {}
        self.core.connect(self.now)
        self.run()

    def delay(self) -> float:
        return 0.0

    def accepts(self, link: Link) -> bool | None:
        return self.reachable

    def accept(self) -> None:
        """Accept the connections that wait, and others from now on."""
        self.reachable = True
        for key, link in list(self.links.items()):
            self.connected(key, link)
        self.run()

    def later(self, seconds: float) -> None:
        """Let time pass, and do everything that becomes due meanwhile."""
        self.run(float(seconds))

    def catch_up(self) -> None:
        """Answer Metadata without delay again."""
        self.slow = False
        for request in self.pending(MetadataRequest):
            self.answer(request, self._metadata(request))

    def break_connections(self) -> None:
        """Break every connection; pending requests get no answer."""
        self.cut()
        self.run()

    def pending(self, kind: type[M]) -> list[M]:
        """The pending requests of one kind, oldest first."""
        return [each.message for each in self.waiting if isinstance(each.message, kind)]

    def asked(self, kind: type[M]) -> M:
        """The only pending request of this kind."""
        (message,) = self.pending(kind)
        return message

    def answer(self, request: object, response: object) -> None:
        """Answer a pending request, and do everything that follows."""
        self.bring(request, response)
        self.run()

    def bring(self, request: object, response: object) -> None:
        """Let the response to a pending request arrive, before the core is polled."""
        (asked,) = [each for each in self.waiting if each.message is request]
        self.waiting.remove(asked)
        self._reply(asked, response)
        self.clock.step()

    def ended(self, key: Key) -> None:
        super().ended(key)
        self.waiting = [each for each in self.waiting if each.key != key]

    def serve(self, key: Key, link: Link, frame: bytes, reply: Callable[[bytes | None], None]) -> None:
        request = frames.parse_request(frame)
        asked = Asked(key, link, request.message, request.header.api_version, request.header.correlation_id)
        match request.message:
            case ApiVersionsRequest():
                keys = tuple(
                    ApiVersion(api_key=k, min_version=a, max_version=b) for k, (a, b) in self._versions.items()
                )
                levels = {"transaction.version": self.transactions, "group.version": self._group_version}
                features = tuple(
                    FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
                    for name, level in levels.items()
                    if level
                )
                answer = ApiVersionsResponse(
                    error_code=0,
                    api_keys=keys,
                    finalized_features_epoch=self.transactions,
                    finalized_features=features,
                )
                self._reply(asked, answer)
            case MetadataRequest() if not self.slow:
                self._reply(asked, self._metadata(request.message))
            case FindCoordinatorRequest():
                self.lookups += 1
                node_id, host, port = self.home
                self._reply(asked, FindCoordinatorResponse(node_id=node_id, host=host, port=port))
            case _:
                self.waiting.append(asked)
        reply(None)  # the test may answer requests of one connection in any order

    def _reply(self, asked: Asked, response: Any) -> None:
        self.deliver(asked.key, asked.link, frames.build_response(response, asked.version, asked.correlation_id))

    def _metadata(self, message: MetadataRequest) -> MetadataResponse:
        self.metadata_requests += 1
        names = list(self.topics) if message.topics is None else [each.name or "" for each in message.topics]
        return MetadataResponse(
            brokers=tuple(
                MetadataResponseBroker(node_id=node, host="one", port=9001, rack=rack)
                for node, rack in self.racks.items()
            ),
            controller_id=1,
            topics=tuple(
                MetadataResponseTopic(
                    error_code=0 if name in self.topics else 3,
                    name=name,
                    topic_id=self.ids.get(name, uuid.UUID(int=7)),
                    partitions=tuple(
                        MetadataResponsePartition(
                            error_code=0,
                            partition_index=index,
                            leader_id=self.leaders.get((name, index), 1),
                            replica_nodes=self.replicas,
                            isr_nodes=(),
                        )
                        for index in range(self.topics.get(name, 0))
                    ),
                )
                for name in names
            ),
        )
