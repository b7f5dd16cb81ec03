"""`__consumer_offsets`: groups and their offsets as records, in Kafka's own format, and back.

Theory of operation: the topic has one partition, and is made when the first record is written. At a start the log is
read from its beginning; of each key the last record holds. So that it does not grow for ever, it is now and then
written anew: a segment is begun, everything that holds is written into it once more, and the segments before it are
removed, the oldest first. A kill between any two of these steps leaves a log that says the same.

Rules:
- What is written anew is what was last stored of a group, not what it is just now: a group in a rebalance comes back in
  the generation before, which its members can tell.
- A damaged batch is left out, and told in the log: what was stored before it holds.
- Whoever stores something changes the memory only afterwards: were it the other way round, writing anew could keep what
  was never acknowledged.

Source: GroupCoordinatorRecordHelpers.java, GroupMetadataManager.java and OffsetMetadataManager.java (replay).
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping

from ottla.brokerlite.machines.group import Committed, Group, Member, Protocol, State
from ottla.brokerlite.machines.log import PartitionLog
from ottla.brokerlite.machines.topics import CONSUMER_OFFSETS as NAME
from ottla.brokerlite.machines.topics import Topic, Topics
from ottla.codec import messages
from ottla.codec.prefixed import SIZE, build_prefixed, parse_prefixed, version_of
from ottla.codec.records import BatchBuilder
from ottla.codec.stored.classic_groups import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)
from ottla.codec.wire import NO_UUID, Declared, api
from ottla.errors import BrokerError, DecodeError

log = logging.getLogger("ottla.brokerlite.groups")

CONFIGS = {"cleanup.policy": "compact", "segment.bytes": str(100 * 2**20), "max.message.bytes": str(64 * 2**20)}
"""Of the topic; Kafka's, but for the largest batch: there a group is one record, as large as it may be."""

REWRITE_BYTES = 4 * 2**20
"""The log is not written anew before it is as large."""
REWRITE_FACTOR = 4
"""Nor before it is so many times larger than it was after the last time."""

_OFFSET_VERSION, _EXPIRING_OFFSET_VERSION, _GROUP_VERSION = 4, 1, 3
"""Of the values; those that Kafka 4.3 writes. Version 1 is the only one with an expiry."""
_BATCH_BYTES = 256 * 2**10
_PRODUCE_VERSION = 13

Pair = tuple[bytes, bytes | None]
"""Key and value of a record."""


class GroupLog:
    """The log of all groups.

    Args:
        groups: those that there are; `load` fills it.
        clock: tells the time, in milliseconds since 1970.
        grown: is told what was added, for those that wait for it.
    """

    def __init__(
        self,
        topics: Topics,
        groups: dict[str, Group],
        clock: Callable[[], int],
        grown: Callable[[PartitionLog, int], None],
    ) -> None:
        self._topics = topics
        self._groups = groups
        self._clock = clock
        self._grown = grown
        self._stored: dict[str, bytes] = {}
        """The last record of each group."""
        self._size = 0
        self._limit = REWRITE_BYTES

    def topic(self) -> Topic:
        """The topic, which did not have to exist.

        Raises:
            KafkaStorageError: the disk refused.
        """
        return self._topics.by_name.get(NAME) or self._topics.create(NAME, 1, CONFIGS)

    # -- writing

    def store_group(self, group: Group, gone: bool) -> None:
        """Keep a group as it is, or forget it.

        Raises:
            BrokerError: it is too large, or the disk refused.
        """
        if gone and group.group_id not in self._stored:
            return
        key, value = _of_group(group, gone)
        self._append([(key, value)])
        if value is None:
            del self._stored[group.group_id]
        else:
            self._stored[group.group_id] = value

    def store_offsets(self, group: Group, offsets: Mapping[tuple[str, int], Committed | None]) -> None:
        """Keep offsets of a group; ``None`` forgets one.

        Raises:
            BrokerError: the disk refused.
        """
        self._append([_of_offset(group.group_id, place, each) for place, each in offsets.items()])

    def _append(self, pairs: Iterable[Pair]) -> None:
        partition = self.topic().partitions[0]
        if self._size > self._limit:
            self._rewrite(partition)
        self._write(partition, pairs)

    def _write(self, partition: PartitionLog, pairs: Iterable[Pair]) -> None:
        """One batch, so that all or none of it is there after a kill."""
        now = self._clock()
        builder = BatchBuilder()
        for key, value in pairs:
            builder.append(now, key, value)
        stored = partition.append(builder.build(), version=_PRODUCE_VERSION, timestamp=now)
        self._size += stored.size
        self._grown(partition, stored.size)

    def _rewrite(self, partition: PartitionLog) -> None:
        before, self._size = self._size, 0
        start = partition.end_offset
        try:
            partition.roll()
            for pairs in _batched(self._everything()):
                self._write(partition, pairs)
            partition.forget(start)
        except BrokerError as error:  # nothing is lost: the old segments are still there
            log.error("%s cannot be written anew: %s", NAME, error)
        self._limit = max(REWRITE_BYTES, REWRITE_FACTOR * self._size)
        log.info("%s was written anew", NAME, extra={"before_bytes": before, "after_bytes": self._size})

    def _everything(self) -> Iterator[Pair]:
        for group_id, group in self._groups.items():
            if (value := self._stored.get(group_id)) is not None:
                yield _key_of_group(group_id), value
            for place, committed in group.offsets.items():
                yield _of_offset(group_id, place, committed)

    # -- reading

    def load(self) -> None:
        """Find again what was stored."""
        if (topic := self._topics.by_name.get(NAME)) is None:
            return
        partition = topic.partitions[0]
        newest: dict[bytes, bytes] = {}
        for batch in partition.batches():
            self._size += len(batch.data)
            for record in () if batch.control else batch.records():
                if record.value is None:
                    newest.pop(record.key or b"", None)
                else:
                    newest[record.key or b""] = record.value
        for key, value in newest.items():
            self._replay(key, value)
        for group in self._groups.values():
            group.learn_subscriptions()
        if self._size > self._limit:
            self._rewrite(partition)

    def _replay(self, key: bytes, value: bytes) -> None:
        try:
            match version_of(key):
                case 1:  # an offset
                    place, _ = messages.parse(OffsetCommitKey, 0, key, SIZE)
                    _, commit, _ = parse_prefixed(OffsetCommitValue, value)
                    self._replay_offset(place, commit)
                case 2:  # a group
                    name, _ = messages.parse(GroupMetadataKey, 0, key, SIZE)
                    _, described, _ = parse_prefixed(GroupMetadataValue, value)
                    self._replay_group(name.group, described)
                    self._stored[name.group] = value
                case _:  # groups of other kinds, which are Kafka's to write
                    pass
        except DecodeError as error:
            log.error("a record of %s is left out: %s", NAME, error)

    def _replay_group(self, group_id: str, value: GroupMetadataValue) -> None:
        group = _group(group_id, value)
        if (known := self._groups.get(group_id)) is not None:
            group.offsets = known.offsets
        self._groups[group_id] = group

    def _replay_offset(self, key: OffsetCommitKey, value: OffsetCommitValue) -> None:
        group = self._groups.setdefault(key.group, Group(key.group))
        group.offsets[key.topic, key.partition] = Committed(
            value.offset,
            value.leader_epoch,
            value.metadata,
            value.commit_timestamp,
            value.expire_timestamp,
            None if value.topic_id == NO_UUID else value.topic_id,
        )


def _record(key: Declared, value: Declared | None, version: int) -> Pair:
    number = api(type(key)).key.to_bytes(SIZE, "big")
    return number + messages.build(key, 0), None if value is None else build_prefixed(value, version)


def _key_of_group(group_id: str) -> bytes:
    return _record(GroupMetadataKey(group=group_id), None, -1)[0]


def _of_group(group: Group, gone: bool) -> Pair:
    key = GroupMetadataKey(group=group.group_id)
    if gone:
        return _record(key, None, -1)
    value = GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation,
        protocol=group.protocol,
        leader=group.leader,
        current_state_timestamp=group.since,
        members=tuple(
            MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata(group.protocol),
                assignment=member.assignment,
            )
            for member in group.members.values()
        ),
    )
    return _record(key, value, _GROUP_VERSION)


def _of_offset(group_id: str, place: tuple[str, int], committed: Committed | None) -> Pair:
    key = OffsetCommitKey(group=group_id, topic=place[0], partition=place[1])
    if committed is None:
        return _record(key, None, -1)
    value = OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_timestamp,
        expire_timestamp=committed.expire_timestamp,
        topic_id=committed.topic_id or NO_UUID,
    )
    return _record(key, value, _OFFSET_VERSION if committed.expire_timestamp < 0 else _EXPIRING_OFFSET_VERSION)


def _group(group_id: str, value: GroupMetadataValue) -> Group:
    """The group that a record describes: stable, or empty."""
    group = Group(group_id, since=value.current_state_timestamp, generation=value.generation, protocol=value.protocol)
    for each in value.members:
        member = Member(
            each.member_id,
            each.group_instance_id,
            each.client_id,
            each.client_host,
            each.session_timeout,
            each.session_timeout if each.rebalance_timeout < 0 else each.rebalance_timeout,
            (Protocol(value.protocol or "", bytes(each.subscription)),),
            bytes(each.assignment),
        )
        group.add(member, value.protocol_type)
    group.protocol_type = value.protocol_type or None
    group.leader = value.leader
    if group.members:
        group.state = State.STABLE
    return group


def _batched(pairs: Iterable[Pair]) -> Iterator[list[Pair]]:
    """The pairs in portions of a batch."""
    portion: list[Pair] = []
    size = 0
    for key, value in pairs:
        portion.append((key, value))
        size += len(key) + len(value or b"")
        if size >= _BATCH_BYTES:
            yield portion
            portion, size = [], 0
    if portion:
        yield portion
