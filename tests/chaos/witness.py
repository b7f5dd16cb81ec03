"""Views of the cluster by other clients, confluent-kafka and kafka-python; no code of ottla is involved.

Committed offsets have two sources: the coordinator's responses during the run, and its log `__consumer_offsets`, in
which every commit is a record. The log decides: a stopped coordinator that resumes may answer from its memory until it
learns of its successor.
"""

import contextlib
import struct
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    IsolationLevel,
    KafkaException,
    Message,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from tests.patience import HUNG

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python uses deprecated parts of Python
    from kafka import KafkaAdminClient
    from kafka import TopicPartition as KafkaPythonPartition
    from kafka.errors import KafkaError

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
PREFERRED = 0
PATIENCE = HUNG
"""Seconds within which a cluster must have recovered once all of its nodes run."""


Isolation = Literal["read_committed", "read_uncommitted"]


class MoveFailed(Exception):
    """Moving leaders failed; the other client is to blame, not ottla."""


class Witness:
    """Observes some topics, ``{name: partitions}``, and the internal topics of coordinators."""

    def __init__(self, bootstrap: str, topics: Mapping[str, int]) -> None:
        self.bootstrap, self.topics = bootstrap, topics
        self._admin = _admin(bootstrap)

    def create_topics(self) -> None:
        config = {"min.insync.replicas": "2"}
        topics = [NewTopic(each, count, replication_factor=3, config=config) for each, count in self.topics.items()]
        until = time.monotonic() + PATIENCE
        while topics:
            created = self._admin.create_topics(topics)
            for topic in list(topics):
                try:
                    created[topic.topic].result(HUNG)
                    topics.remove(topic)
                except KafkaException:  # the controller is not ready yet
                    if time.monotonic() > until:
                        raise
            time.sleep(0.2)

    def replicas(self) -> dict[tuple[str, int], tuple[int, list[int], list[int]]]:
        """Partition -> its leader, all replicas (preferred first), and the replicas in sync; with internal topics."""
        topics = self._admin.list_topics(timeout=10).topics
        return {
            (name, number): (each.leader, list(each.replicas), list(each.isrs))
            for name in (*self.topics, OFFSETS_TOPIC, TRANSACTIONS_TOPIC)
            if name in topics
            for number, each in topics[name].partitions.items()
        }

    def coordinator(self, topic: str, name: str) -> int:
        """The node that coordinates a group or a transactional id, by the leader of its partition; -1 if there is none.

        Source: GroupMetadataManager.partitionFor, TransactionStateManager.partitionFor; String.hashCode of Java.
        """
        leaders = {number: leader for (other, number), (leader, _, _) in self.replicas().items() if other == topic}
        hashed = 0
        for each in name:
            hashed = (31 * hashed + ord(each)) & 0xFFFFFFFF
        return leaders.get((hashed & 0x7FFFFFFF) % len(leaders), -1) if leaders else -1

    def await_in_sync(self) -> None:
        """Wait until every replica follows its leader."""
        until = time.monotonic() + PATIENCE
        while True:
            with contextlib.suppress(KafkaException):
                if all(leader >= 0 and len(isr) == len(all_) for leader, all_, isr in self.replicas().values()):
                    return
            if time.monotonic() > until:
                raise TimeoutError(f"not all replicas are in sync after {PATIENCE:g} s: {self.replicas()}")
            time.sleep(0.5)

    def move_leaders(self, which: Callable[[tuple[str, int]], bool]) -> int:
        """Make the next replica of the chosen partitions the preferred one, elect it, and return the number of moves.

        Raises:
            MoveFailed: the other client failed.
        """
        try:
            return self._move_leaders(which)
        except (KafkaError, KafkaException) as error:
            raise MoveFailed(str(error)) from error

    def _move_leaders(self, which: Callable[[tuple[str, int]], bool]) -> int:
        before = self.replicas()
        turned = {place: [*all_[1:], all_[0]] for place, (_, all_, _) in before.items() if which(place)}
        admin = KafkaAdminClient(bootstrap_servers=self.bootstrap.split(","), request_timeout_ms=20_000)
        try:
            admin.alter_partition_reassignments(
                {KafkaPythonPartition(*place): replicas for place, replicas in turned.items()}, timeout_ms=20_000
            )
            topics = {name: [number for other, number in turned if other == name] for name, _ in turned}
            admin.elect_leaders(PREFERRED, topics, timeout_ms=20_000, raise_errors=False)
        finally:
            admin.close()
        time.sleep(0.5)
        after = self.replicas()
        return sum(after[place][0] != before[place][0] for place in turned if place in after)

    # -- the log -----------------------------------------------------------------------------------------------------

    def ends(self, *, committed: bool = False) -> dict[tuple[str, int], int]:
        """Partition -> its high watermark, or its last stable offset; raises KafkaException."""
        isolation = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        latest: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
        wanted = {TopicPartition(topic, each): latest for topic, count in self.topics.items() for each in range(count)}
        # A new client each time: librdkafka 2.16, when it knows the leader and the same node is elected again, keeps
        # asking with its old epoch. `admin` keeps the client alive, which gives no answers after its deletion.
        admin = _admin(self.bootstrap)
        found = admin.list_offsets(wanted, isolation_level=isolation, request_timeout=10)
        return {(place.topic, place.partition): future.result(HUNG).offset for place, future in found.items()}

    def log(self, topic: str, *, committed: bool = False) -> dict[int, list[tuple[int, bytes, bytes]]]:
        """Partition -> its records (offset, key, value), either all or only the committed ones."""
        partitions = range(self.topics[topic])
        log: dict[int, list[tuple[int, bytes, bytes]]] = {each: [] for each in partitions}
        for message in self.messages(topic, partitions, "read_committed" if committed else "read_uncommitted"):
            offset, key, value, partition = message.offset(), message.key(), message.value(), message.partition()
            assert isinstance(key, bytes) and isinstance(value, bytes) and offset is not None and partition is not None
            log[partition].append((offset, key, value))
        return log

    def messages(self, topic: str, partitions: Iterable[int], isolation: Isolation) -> Iterable[Message]:
        """All records of some partitions, up to their present end."""
        consumer = _reader(self.bootstrap, "witness", isolation)
        try:
            ends: dict[int, int] = {}
            for each in partitions:
                low, high = consumer.get_watermark_offsets(TopicPartition(topic, each), timeout=30)
                if high > low:
                    ends[each] = high
            consumer.assign([TopicPartition(topic, each, OFFSET_BEGINNING) for each in ends])
            silent_since = time.monotonic()
            while ends:
                for message in consumer.consume(10_000, timeout=0.5):
                    if message.error():
                        continue
                    silent_since = time.monotonic()
                    yield message
                # The last record may have been compacted, or be a marker, so the position decides.
                for at in consumer.position([TopicPartition(topic, each) for each in ends]):
                    if at.offset >= ends[at.partition]:
                        del ends[at.partition]
                if time.monotonic() > silent_since + PATIENCE:
                    raise TimeoutError(f"{topic} could not be read to its end: {ends}")
        finally:
            consumer.close()


class GroupWitness:
    """Observes how far a group has committed in a topic."""

    def __init__(self, witness: Witness, group: str, topic: str) -> None:
        self._witness, self._group, self._topic = witness, group, topic
        # A consumer that never joins: librdkafka 2.16 crashes in AdminClient.list_consumer_group_offsets when the
        # coordinator stops during the call.
        self._reader = _reader(witness.bootstrap, group)

    def committed(self) -> dict[int, int]:
        """Partition -> committed offset, by the coordinator's response; raises KafkaException."""
        places = [TopicPartition(self._topic, each) for each in range(self._witness.topics[self._topic])]
        found = self._reader.committed(places, timeout=5)
        return {each.partition: each.offset for each in found if each.offset >= 0 and each.error is None}

    def behind(self) -> dict[int, int]:
        """Partition -> number of uncommitted records, for partitions that have some; raises KafkaException."""
        ends, committed = self._witness.ends(), self.committed()
        ours = {number: end for (topic, number), end in ends.items() if topic == self._topic}
        return {each: end - committed.get(each, 0) for each, end in ours.items() if committed.get(each, 0) < end}

    def commits(self) -> dict[int, list[int]]:
        """Partition -> every committed offset, in the order of the coordinator's log.

        Offsets of a transaction are among them if it was committed.
        """
        commits: dict[int, list[int]] = {}
        partitions = [number for name, number in self._witness.replicas() if name == OFFSETS_TOPIC]
        for message in self._witness.messages(OFFSETS_TOPIC, partitions, "read_committed"):
            key, value = message.key(), message.value()
            place = _place(key if isinstance(key, bytes) else b"")
            if place is not None and place[:2] == (self._group, self._topic) and isinstance(value, bytes):
                commits.setdefault(place[2], []).append(struct.unpack_from(">hq", value)[1])
        return commits


def _admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


def _reader(bootstrap: str, group: str, isolation: Isolation = "read_uncommitted") -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "enable.auto.commit": False,
            "enable.partition.eof": False,
            "isolation.level": isolation,
            "log_level": 0,
        }
    )


def _place(key: bytes) -> tuple[str, str, int] | None:
    """Group, topic and partition of a commit in `__consumer_offsets`; other records there have keys of another form."""
    if len(key) < 2 or struct.unpack_from(">h", key)[0] > 1:
        return None
    at, texts = 2, []
    for _ in range(2):
        (length,) = struct.unpack_from(">h", key, at)
        texts.append(key[at + 2 : at + 2 + length].decode())
        at += 2 + length
    return texts[0], texts[1], struct.unpack_from(">i", key, at)[0]


class Watch:
    """A thread that asks for the committed offsets each second, and keeps the answers."""

    def __init__(self, group: GroupWitness) -> None:
        self._group = group
        self.seen: list[tuple[float, dict[int, int]]] = []
        """Pairs of the time of the request, and the answer."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> "Watch":
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._stop.set()
        self._thread.join(HUNG)

    def _watch(self) -> None:
        while not self._stop.wait(1.0):
            asked = time.monotonic()
            with contextlib.suppress(KafkaException, TimeoutError):  # the coordinator is being killed, or moves
                self.seen.append((asked, self._group.committed()))
