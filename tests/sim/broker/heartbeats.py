"""What the coordinator of consumer groups (KIP-848) may answer to heartbeats, and members that send odd ones.

Rules:
- A heartbeat names the last epoch that the member received. The epoch before it counts only if the heartbeat also names
  partitions, and all of them are assigned: the answer with the newer epoch may have been lost.
- A heartbeat without a list of partitions (``None``) reports nothing. An empty list reports that the member has none.
- A partition is assigned to a member only after all others have reported that they do not have it.

Source: GroupMetadataManager.java (throwIfConsumerGroupMemberEpochIsInvalid), CurrentAssignmentBuilder.java.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random
from typing import Any
from uuid import UUID

from ottla.codec.apis.consumer_group_heartbeat import (
    JOIN,
    LEAVE,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from ottla.errors import FencedMemberEpoch, UnknownMemberId
from tests.sim.broker.peer import Ask, Peer, Steps
from tests.sim.broker.server import Server
from tests.sim.users import Violation

GROUP = "odd"
"""The group of the members that send odd heartbeats."""
OLD_EPOCH = "a heartbeat of an old epoch is accepted"
TWICE = "a partition is assigned to a member before another one has given it up"
AWAITED = "the coordinator waits for partitions that the member does not have any more"

Part = tuple[UUID, int]


@dataclass(slots=True)
class Known:
    """What a member was told, and what it may have."""

    epoch: int
    before: int = -1
    """The epoch before the last one."""
    told: frozenset[Part] = frozenset()
    has: frozenset[Part] = frozenset()


@dataclass(slots=True)
class Heartbeats:
    """Checks all answers to heartbeats."""

    server: Server
    _known: dict[str, dict[str, Known]] = field(default_factory=dict)
    """Group -> member -> what it was told."""

    def started(self) -> None:
        """The broker is up again: it may have taken reports whose answers it did not send."""
        for members in self._known.values():
            for each in members.values():
                each.has = frozenset()

    def answered(self, request: Any, answer: Any) -> None:
        if isinstance(request, ConsumerGroupHeartbeatRequest) and isinstance(answer, ConsumerGroupHeartbeatResponse):
            members = self._known.setdefault(request.group_id, {})
            if request.member_epoch < 0 or answer.error_code in (UnknownMemberId.code, FencedMemberEpoch.code):
                members.pop(request.member_id, None)
            elif not answer.error_code:
                self._accepted(members, request, answer)

    def _accepted(
        self,
        members: dict[str, Known],
        request: ConsumerGroupHeartbeatRequest,
        answer: ConsumerGroupHeartbeatResponse,
    ) -> None:
        name = request.member_id
        reported = None if request.topic_partitions is None else parts_of(request.topic_partitions)
        known = members.get(name)
        if request.member_epoch == JOIN or known is None:
            known = members[name] = Known(request.member_epoch)
        elif request.member_epoch != known.epoch and not (
            request.member_epoch == known.before and reported is not None and reported <= known.told
        ):
            listed = "no partitions" if reported is None else _told(reported)
            raise Violation(OLD_EPOCH, f"{name}: {request.member_epoch} with {listed}, after {known.epoch}")
        if reported is not None:
            known.has = reported
        if answer.member_epoch != known.epoch:
            known.before, known.epoch = known.epoch, answer.member_epoch
        if answer.assignment is not None:
            known.told = parts_of(answer.assignment.topic_partitions)
            self._check_free(request.group_id, name, known.told)
            known.has |= known.told
        if reported is not None:
            self._check_awaited(request.group_id, name, reported)

    def _check_free(self, group: str, name: str, told: frozenset[Part]) -> None:
        there = self.server.core.consumer_groups.by_id.get(group)
        for other, each in self._known[group].items():
            # A member whose time was up is not in the group any more.
            if other != name and there is not None and other in there.members and each.has & told:
                raise Violation(TWICE, f"{name} gets {_told(each.has & told)}, which {other} has")

    def _check_awaited(self, group: str, name: str, reported: frozenset[Part]) -> None:
        there = self.server.core.consumer_groups.by_id.get(group)
        member = None if there is None else there.members.get(name)
        if member is None or there is None:
            return
        awaited = frozenset((topic_id, index) for topic_id, each in member.revoking.items() for index in each)
        if awaited and not awaited & reported:
            raise Violation(AWAITED, f"{name} has reported {_told(reported)}, and not {_told(awaited)}")


def _told(parts: frozenset[Part]) -> str:
    return ", ".join(sorted(f"{topic_id}-{index}" for topic_id, index in parts)) or "an empty list"


def parts_of(topics: Iterable[TopicPartitions]) -> frozenset[Part]:
    return frozenset((each.topic_id, index) for each in topics for index in each.partitions)


@dataclass(slots=True, eq=False)
class Odd:
    """A member that gives up partitions late, changes its topics, and repeats heartbeats of earlier epochs."""

    peer: Peer
    chance: Random
    features: Counter[str]
    topics: tuple[str, ...]
    over: Callable[[], bool]
    _epochs: list[int] = field(default_factory=list)
    """The epochs that it was told since it joined."""
    _told: frozenset[Part] = frozenset()
    _has: frozenset[Part] = frozenset()

    def script(self) -> Steps:
        chance = self.chance
        while not self.over():
            yield chance.uniform(0.0, 0.4)
            if self._epochs and chance.random() < 0.05:
                yield from self._beat(LEAVE, None)
                self._forget()
                continue
            if chance.random() < 0.5:
                self._has &= self._told
            reports = None if self._epochs and chance.random() < 0.5 else self._has
            topics = tuple(chance.sample(self.topics, chance.randint(1, len(self.topics))))
            epoch = self._epochs[-1] if self._epochs else JOIN
            if len(self._epochs) > 1 and chance.random() < 0.15:
                self.features["a heartbeat names the epoch before"] += 1
                epoch = self._epochs[-2]
            yield from self._beat(epoch, reports, topics if epoch == JOIN or chance.random() < 0.2 else None)
        if self._epochs:
            yield from self._beat(LEAVE, None)

    def _forget(self) -> None:
        self._epochs, self._told, self._has = [], frozenset(), frozenset()

    def _beat(self, epoch: int, reports: frozenset[Part] | None, topics: tuple[str, ...] | None = None) -> Steps:
        answer = yield Ask(
            ConsumerGroupHeartbeatRequest(
                group_id=GROUP,
                member_id=self.peer.name,
                member_epoch=epoch,
                rebalance_timeout_ms=20_000 if epoch == JOIN else -1,
                subscribed_topic_names=topics,
                topic_partitions=None if reports is None else by_topic(reports),
            ),
            1,
        )
        if answer is None or answer.error_code in (UnknownMemberId.code, FencedMemberEpoch.code):
            # Without an answer it leaves and joins again, because it does not know its assignment any more.
            self._forget()
        elif not answer.error_code and epoch >= JOIN:
            if answer.member_epoch not in self._epochs[-1:]:
                self._epochs.append(answer.member_epoch)
            if answer.assignment is not None:
                self._told = parts_of(answer.assignment.topic_partitions)
                self._has |= self._told


def by_topic(parts: Iterable[Part]) -> tuple[TopicPartitions, ...]:
    topics: dict[UUID, list[int]] = {}
    for topic_id, index in sorted(parts, key=str):
        topics.setdefault(topic_id, []).append(index)
    return tuple(TopicPartitions(topic_id=each, partitions=tuple(some)) for each, some in topics.items())
