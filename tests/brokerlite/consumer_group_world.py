"""Simulated worlds of consumer groups: members that keep to the protocol of KIP-848, and trouble.

The network loses requests and answers, the broker is killed, and its disk refuses writes at times.

In every world:
- Two members never own a partition at the same time, as they see it.
- A member's commit for a partition that it owns is accepted, or it hears that its epoch is old. A commit with an old
  epoch, for a partition that another member owns by now, is refused.
- A restart restores every group as it was.
- In the end the group is stable, each partition has one member, and ``uniform`` gives all about the same number.
"""

import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

from ottla.brokerlite.machines.consumer_groups.consumer_group import ConsumerGroup
from ottla.brokerlite.machines.consumer_groups.consumer_group_settings import ConsumerGroupSettings
from ottla.codec.apis.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from ottla.codec.apis.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.codec.apis.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from ottla.errors import (
    CoordinatorLoadInProgress,
    FencedMemberEpoch,
    KafkaStorageError,
    StaleMemberEpoch,
    UnknownMemberId,
    UnreleasedInstanceId,
)
from tests.brokerlite.machine import Machine

STEPS = 150
SESSION = 45.0
PARTITIONS = 6
Place = tuple[UUID, int]


class Broken(AssertionError):
    """A world found that a promise is broken."""


@dataclass(eq=False)
class SimMember:
    """A member that keeps to the protocol.

    Attributes:
        told: the partitions of the last assignment that it has received.
        owned: the partitions that it reads.
        heard: when its last heartbeat was answered.
        full: its next heartbeat tells everything, because an answer may have been lost.
    """

    id: str
    instance: str | None
    topics: tuple[str, ...]
    epoch: int = 0
    told: set[Place] = field(default_factory=set)
    owned: set[Place] = field(default_factory=set)
    heard: float = 0.0
    full: bool = True

    def abandon(self) -> None:
        """Give up everything, to join again."""
        self.epoch, self.full = 0, True
        self.told, self.owned = set(), set()


class World:
    """One group of members, and its broker."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        assignor = self.rng.choice(("uniform", "range"))
        self.uniform = assignor == "uniform"
        settings = ConsumerGroupSettings(assignors=(assignor, "range" if self.uniform else "uniform"))
        self.machine = Machine(folder, consumer_groups=settings)
        for name in ("t", "u"):
            self.machine.core.create_topic(name, PARTITIONS, {})
        self.members: list[SimMember] = []
        self.gone: dict[Place, list[tuple[str, int]]] = {}
        """Partition -> members that gave it up, and the epochs in which they did."""
        self._made = 0
        self._refuses = False

    # -- what happens

    def run(self) -> None:
        for _ in range(STEPS):
            self.step()
            self.check()
        self.settle()

    def step(self) -> None:
        rng = self.rng
        member = rng.choice(self.members) if self.members else None
        act = rng.choice(
            ("join", "leave", "away", "die", "kill", "grow", "disk", *["beat"] * 12, *["commit"] * 4, "told")
        )
        self.machine.now += rng.choice((0.1, 1.0, 3.0))
        self.machine.poll()
        match act:
            case "join" if len(self.members) < 5:
                self._made += 1
                instance = f"i{self._made}" if rng.random() < 0.3 else None
                topics = rng.choice((("t",), ("t", "u")))
                self.members.append(SimMember(f"m{self._made}", instance, topics, heard=self.machine.now))
            case "leave" if member is not None and member.epoch and rng.random() < 0.5:
                self._send(member, self._request(member, epoch=-1))
                self.members.remove(member)
            case "away" if member is not None and member.epoch and member.instance is not None:
                self._away(member)
            case "die" if member is not None and member.instance is None and rng.random() < 0.3:
                self.members.remove(member)  # its session times out
            case "kill" if rng.random() < 0.5:
                self.restart()
            case "grow" if rng.random() < 0.3:
                self.grow()
            case "disk":
                self.refuse(rng.random() < 0.2)
            case "commit" if member is not None:
                self.commit(member)
            case "told" if member is not None and member.epoch and rng.random() < 0.3:
                member.topics, member.full = rng.choice((("t",), ("t", "u"))), True
            case _ if member is not None:
                self.beat(member)
        for each in self.members:
            if self.machine.now - each.heard > SESSION / 3:
                self.beat(each, certain=True)

    def _away(self, member: SimMember) -> None:
        """A static member is started again, with another member id."""
        if self._send(member, self._request(member, epoch=-2)).error_code:
            return  # the disk refused: it would find its instance id in use until its session times out
        self._made += 1
        member.id = f"m{self._made}"
        member.abandon()

    def beat(self, member: SimMember, *, certain: bool = False) -> None:
        """Send a heartbeat; the request or its answer may be lost."""
        kept = member.owned & member.told
        for place in member.owned - kept:
            self.gone.setdefault(place, []).append((member.id, member.epoch))
        member.owned = kept
        if self.rng.random() < 0.1 and not certain:
            return  # it never arrives
        answer = self._send(member, self._request(member))
        if self.rng.random() < 0.1 and not certain:
            member.full = True
            return
        self.hear(member, answer)

    def hear(self, member: SimMember, answer: Any) -> None:
        member.heard = self.machine.now
        if answer.error_code in (FencedMemberEpoch.code, UnknownMemberId.code):
            member.abandon()
        elif answer.error_code in (CoordinatorLoadInProgress.code, UnreleasedInstanceId.code):
            # A static member whose first answer was lost finds its instance id in use, until its session ends.
            member.full = True
        elif answer.error_code:
            raise Broken(f"{member.id} got {answer.error_code} {answer.error_message}")
        else:
            member.epoch, member.full = answer.member_epoch, False
            if answer.assignment is not None:
                told = {(each.topic_id, i) for each in answer.assignment.topic_partitions for i in each.partitions}
                member.told = told
                member.owned |= told

    def _request(self, member: SimMember, epoch: int | None = None) -> ConsumerGroupHeartbeatRequest:
        epoch = member.epoch if epoch is None else epoch
        full = member.full or epoch == 0
        return ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id=member.id,
            member_epoch=epoch,
            instance_id=member.instance,
            rebalance_timeout_ms=300_000 if full else -1,
            subscribed_topic_names=member.topics if full else None,
            topic_partitions=() if epoch == 0 else by_topic(member.owned),
        )

    def _send(self, member: SimMember, request: ConsumerGroupHeartbeatRequest) -> Any:
        return self.machine.ask(request, 1)

    def commit(self, member: SimMember) -> None:
        """Commit for what the member owns, and for a partition that it gave up and another member has."""
        for place in sorted(member.owned & member.told, key=str)[:2]:
            code = self._commit(member.id, member.epoch, place)
            late = (0, StaleMemberEpoch.code, CoordinatorLoadInProgress.code, UnknownMemberId.code)
            if code not in late or (code == StaleMemberEpoch.code and self._is_current(member)):
                raise Broken(f"{member.id} got {code} for a partition that it owns, {place}")
        others = [(place, each) for each in self.members if each is not member for place in sorted(each.owned, key=str)]
        for place, _ in others[:4]:
            for name, epoch in self.gone.get(place, ())[-2:]:
                known = self.group.members.get(name) if self.group else None
                if known is not None and known.epoch == epoch:
                    continue  # as in Apache Kafka, nothing but the epoch of a member is checked while it is the current
                if name != member.id and not self._commit(name, epoch, place):
                    raise Broken(f"{name} committed in epoch {epoch} for {place}, which another member owns")

    def _is_current(self, member: SimMember) -> bool:
        group = self.group
        known = group.members.get(member.id) if group else None
        return known is not None and known.epoch == member.epoch

    def _commit(self, member_id: str, epoch: int, place: Place) -> int:
        topic = self.machine.core.topics.by_id[place[0]].name
        partition = OffsetCommitRequestPartition(partition_index=place[1], committed_offset=1, committed_metadata=None)
        topics = (OffsetCommitRequestTopic(name=topic, partitions=(partition,)),)
        request = OffsetCommitRequest(
            group_id="g", generation_id_or_member_epoch=epoch, member_id=member_id, topics=topics
        )
        return int(self.machine.ask(request, 9).topics[0].partitions[0].error_code)

    def grow(self) -> None:
        name = self.rng.choice(("t", "u"))
        count = len(self.machine.core.topics.by_name[name].partitions) + 1
        topic = CreatePartitionsTopic(name=name, count=count, assignments=None)
        self.machine.ask(CreatePartitionsRequest(topics=(topic,), timeout_ms=1000, validate_only=False), 3)

    def refuse(self, refuses: bool) -> None:
        """Let the disk refuse the records of groups, or take them again."""
        log = self.machine.core.consumer_groups._roster._stored._log
        if "write" in vars(log):
            del log.write
        self._refuses = refuses
        if refuses:

            def write(pairs: object, transactional: object = None) -> int:
                raise KafkaStorageError("the disk is full")

            log.write = write  # type: ignore[method-assign]

    def restart(self) -> None:
        """Kill the broker, and start it again."""
        before = describe(self.group)
        now = self.machine.now
        self.refuse(False)
        self.machine = self.machine.restart(clean=False)
        for each in self.members:
            each.heard -= now - self.machine.now  # the clock of a machine starts again
        if describe(self.group) != before:
            raise Broken(f"restored as {describe(self.group)}, not as {before}")

    # -- what must hold

    @property
    def group(self) -> ConsumerGroup | None:
        return self.machine.core.consumer_groups.by_id.get("g")

    def check(self) -> None:
        owners = Counter(place for member in self.members for place in member.owned)
        if twice := [place for place, count in owners.items() if count > 1]:
            raise Broken(f"two members own {twice}")
        if (group := self.group) is None:
            return
        held = {place: each.member_id for each in group.members.values() for place in each.places()}
        if held != group._owners:
            raise Broken("the index of owners is wrong")
        target = Counter((t, i) for each in group.target.values() for t, parts in each.items() for i in parts)
        if any(count > 1 for count in target.values()):
            raise Broken("the target gives a partition to two members")
        if group.size != sum(each.size for each in group.members.values()):
            raise Broken("the size is wrong")

    def settle(self) -> None:
        """Let nothing more fail, and let the group end stable, after new partitions and a goodbye."""
        self.refuse(False)
        self.machine.now += 2 * SESSION
        for each in self.members:
            each.abandon()  # its session has timed out
        self.machine.pass_time(1.0)
        self._calm()
        self.grow()
        self._calm()
        if len(self.members) > 1:
            leaver = self.members.pop()
            self._send(leaver, self._request(leaver, epoch=-1))
            self._calm()

    def _calm(self) -> None:
        """Let members send heartbeats, until the group must be stable."""
        for _ in range(12):
            self.machine.now += 1.0
            for each in self.members:
                self.beat(each, certain=True)
                self.check()
        group = self.group
        if not self.members or group is None:
            return
        if (state := group.state_name) != "Stable" or len(group.members) != len(self.members):
            raise Broken(f"the group is {state} in the end, with {len(group.members)} members")
        topics = self.machine.core.topics
        wanted = {
            (topics.by_name[name].topic_id, i)
            for each in self.members
            for name in each.topics
            for i in range(len(topics.by_name[name].partitions))
        }
        if {place for each in self.members for place in each.owned} != wanted:
            raise Broken("some partitions are nobody's")
        sizes = [len(each.owned) for each in self.members]
        if self.uniform and len({each.topics for each in self.members}) == 1 and max(sizes) - min(sizes) > 1:
            raise Broken(f"uneven: {sizes}")


def by_topic(places: set[Place]) -> tuple[TopicPartitions, ...]:
    found: dict[UUID, list[int]] = {}
    for topic_id, index in sorted(places, key=str):
        found.setdefault(topic_id, []).append(index)
    return tuple(TopicPartitions(topic_id=topic_id, partitions=tuple(each)) for topic_id, each in found.items())


def describe(group: ConsumerGroup | None) -> object:
    """Everything about a group that a restart must restore."""
    if group is None:
        return None
    target = {name: each for name, each in group.target.items() if each}
    return group.epoch, group.target_epoch, group.target_timestamp, group.topics_hash, group.members, target
