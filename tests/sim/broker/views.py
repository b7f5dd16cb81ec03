"""The broker as the client's ledgers see it, with the names of the model cluster."""

from collections.abc import Iterable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple
from uuid import UUID

from ottla.codec.wire import NO_UUID
from tests.sim.broker.logs import Logs, LogView
from tests.sim.broker.server import NODE, Server
from tests.sim.cluster import topic_name
from tests.sim.data import Place
from tests.sim.group_ledger import GroupLedger

LONG_UP = 10.0
"""Seconds after a start in which a leave may have been lost."""


class Cluster:
    """The broker as the client's ledgers see it, with the names of the model cluster."""

    def __init__(self, server: Server, logs: Logs) -> None:
        self._server = server
        self._logs = logs
        self.network = server.network
        self.data = SimpleNamespace(features=server.features, strict=False)
        self.nodes = {NODE: server}
        self.buried: dict[Place, list[LogView]] = {}
        self.groups = SimpleNamespace(groups=self, modern=self)

    @property
    def logs(self) -> dict[Place, LogView]:
        return self._logs.views

    def get(self, group: str) -> "GroupView | None":
        """A group, as the coordinator knows it."""
        core = self._server.core
        known, modern = core.groups.classic.by_id.get(group), core.consumer_groups.by_id.get(group)
        offsets = {place: (each.offset,) for place, each in core.offsets.of(group).items()}
        members = {name: MemberView(name, each.assignment) for name, each in known.members.items()} if known else {}
        if modern is None:
            return GroupView(members, known.generation if known else 0, offsets)
        having = {name: ModernMemberView(name, frozenset(each.places())) for name, each in modern.members.items()}
        return GroupView(members, modern.epoch, offsets, ModernView(modern.epoch, having))

    def places(self, parts: Iterable[tuple[UUID, int]]) -> set[Place]:
        """Partitions by the names of their topics, without deleted topics."""
        known = self._server.core.topics.by_id
        return {(known[topic_id].name, index) for topic_id, index in parts if topic_id in known}

    def ever_named(self, topic: Any) -> str:
        """The name of a topic in a request or an answer."""
        by_id: UUID = getattr(topic, "topic_id", NO_UUID)
        if by_id == NO_UUID:
            return topic_name(topic)
        known = self._server.core.topics.by_id.get(by_id)
        return known.name if known else ""


class MemberView(NamedTuple):
    id: str
    assignment: bytes


class ModernMemberView(NamedTuple):
    id: str
    has: frozenset[tuple[UUID, int]]
    """The partitions that no other member may have."""


class ModernView(NamedTuple):
    epoch: int
    members: dict[str, ModernMemberView]


@dataclass
class GroupView:
    members: dict[str, MemberView]
    generation: int
    offsets: dict[Place, tuple[int]]
    modern: "ModernView | None" = None
    """The members of a consumer group (KIP-848)."""


@dataclass(slots=True)
class BrokerGroupLedger(GroupLedger):
    """As for the model cluster, but a member that leaves while the broker is down cannot send LeaveGroup."""

    server: Server | None = None

    def coordinator(self) -> int:
        return 0  # the only broker

    def left(self, who: str, member: str, instance: str | None) -> None:
        server = self.server
        if server is not None and server.is_up and server.clock.now - server.since > LONG_UP:
            GroupLedger.left(self, who, member, instance)
