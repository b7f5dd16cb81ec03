"""The data folder: whose it is, which topics it holds, who may use it.

Rules:
- One broker at a time: `.lock` is held while it runs.
- `broker.json` says which topics there are, and is replaced as a whole: a topic is in it before its folders exist, and
  out of it before they go, so a kill at any moment leaves a topic that is whole (and empty) or gone. Folders of topics
  that are not in it are set aside as Kafka does, with the suffix ``-stray``.
- `broker.json` has the leader epoch, too, which is raised at a start that is not clean (`LeaderEpochs`).
- A folder that holds something else, or belongs to another node, is refused before anything in it is touched.

Source: LogManager.java (lock, clean shutdown file, stray folders), MetaPropertiesEnsemble.java.
"""

import contextlib
import fcntl
import json
import logging
import os
import shutil
import uuid
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

from ottla.brokerlite.machines.producers import Producers
from ottla.brokerlite.machines.topics import Partition, Stored
from ottla.brokerlite.storage import checkpoints
from ottla.brokerlite.storage.partition import Chore, PartitionSegments
from ottla.codec.stored.checkpoints import Properties, build_properties, parse_properties, short_id
from ottla.errors import ConfigurationError, KafkaStorageError

log = logging.getLogger("ottla.brokerlite")

LOCK = ".lock"
META = "meta.properties"
STATE = "broker.json"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
_VERSION = 1
"""Of `broker.json`."""
_OURS = frozenset((LOCK, STATE, STATE + ".tmp", META + ".tmp"))
"""What a start that was cut off may leave before the folder has its `meta.properties`."""
_DELETED = "-delete"
_STRAY = "-stray"
_LONGEST_NAME = 200
"""Of the topic in the name of a folder that is to be deleted: with the rest it must stay below 255."""


class Recovered(NamedTuple):
    """What a start found, for the log."""

    what: str
    topics: int
    partitions: int
    truncated_bytes: int


class _Topic(NamedTuple):
    stored: Stored
    partitions: list[PartitionSegments]


class DataFolder:
    """The folder (`ottla.brokerlite.machines.topics.Storage`).

    Args:
        sync: have the disk hold what is stored (a temporary folder needs no such care).
        chore: is given work that waits for the disk.

    Attributes:
        cluster_id: as `meta.properties` says.
        recovered: what `open` found.
    """

    def __init__(
        self, path: Path, *, index_interval_bytes: int, sync: bool = True, chore: Callable[[Chore], None]
    ) -> None:
        self.path = path
        self.cluster_id = ""
        self.recovered = Recovered("", 0, 0, 0)
        self._interval = index_interval_bytes
        self._sync = sync
        self._chore = chore
        self._topics: dict[str, _Topic] = {}
        self._next_producer_id = 0
        self._leader_epoch = 0
        self._lock = -1

    # -- life

    def open(self, node_id: int, cluster_id: str | None) -> None:
        """Take the folder, making it if need be, and find everything in it again.

        Raises:
            ConfigurationError: it cannot be used; the message says why and what would do.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._refuse_something_else()
            self._take_lock()
            new = self._take_identity(node_id, cluster_id)
            self._recover(new)
        except OSError as error:
            self._release()
            raise ConfigurationError(
                f"the data folder {self.path} cannot be used: {error.strerror or error}; "
                "give one that this user may write to"
            ) from error
        except ConfigurationError:
            self._release()
            raise

    def close(self) -> None:
        """Leave the folder in good order; takes as long as the disk does."""
        for topic in self._topics.values():
            for segments, partition in zip(topic.partitions, topic.stored.partitions, strict=True):
                segments.close(partition.producers, sync=self._sync)
        self._write_recovery_points()
        checkpoints.replace(self.path / CLEAN_SHUTDOWN, b'{"version":0,"brokerEpoch":-1}')
        if self._sync:
            for name in (STATE, RECOVERY_POINTS, CLEAN_SHUTDOWN, "."):
                checkpoints.sync(self.path / name)
        self._release()

    def abandon(self) -> None:
        """Leave the folder as a kill would."""
        for topic in self._topics.values():
            for segments in topic.partitions:
                segments.abandon()
        self._release()

    # -- what the machine asks for

    def topics(self) -> Iterable[Stored]:
        return [topic.stored for topic in self._topics.values()]

    def create_topic(self, name: str, topic_id: uuid.UUID, partitions: int, configs: Mapping[str, str]) -> Stored:
        topic = self._new_topic(name, topic_id, partitions, configs)
        self._topics[name] = topic
        try:
            self._write_state()
            for segments in topic.partitions:
                self._set_aside_if_there(segments.folder)
                segments.create(topic_id, self._leader_epoch)
        except OSError as error:
            del self._topics[name]
            for segments in topic.partitions:
                shutil.rmtree(segments.folder, ignore_errors=True)
            with contextlib.suppress(OSError):  # the first error says it; an empty topic at the next start is no harm
                self._write_state()
            raise self._refused(f"create topic {name}", error) from error
        return topic.stored

    def delete_topic(self, name: str) -> None:
        topic = self._topics.pop(name)
        try:
            self._write_state()
        except OSError as error:
            self._topics[name] = topic
            raise self._refused(f"delete topic {name}", error) from error
        self._chore(self._write_recovery_points)  # another of the name must not go by those of this one
        for index, segments in enumerate(topic.partitions):
            segments.abandon()
            gone = self.path / f"{name[:_LONGEST_NAME]}-{index}.{topic.stored.topic_id.hex}{_DELETED}"
            try:
                segments.folder.rename(gone)
            except OSError as error:
                log.error("cannot remove a folder: %s", error, extra={"folder": str(segments.folder)})
            else:
                segments.folder = gone
                self._chore(partial(shutil.rmtree, gone, ignore_errors=True))

    def add_partitions(self, name: str, count: int) -> list[Partition]:
        known = self._topics[name]
        grown = self._new_topic(name, known.stored.topic_id, count, known.stored.configs)
        first = len(known.partitions)
        new = grown.partitions[first:]
        self._topics[name] = _Topic(known.stored, [*known.partitions, *new])
        try:
            self._write_state()
            for segments in new:
                self._set_aside_if_there(segments.folder)
                segments.create(known.stored.topic_id, self._leader_epoch)
        except OSError as error:
            self._topics[name] = known
            for segments in new:
                shutil.rmtree(segments.folder, ignore_errors=True)
            with contextlib.suppress(OSError):  # the first error says it; an empty partition more is no harm
                self._write_state()
            raise self._refused(f"add partitions to {name}", error) from error
        known.stored.partitions.extend(grown.stored.partitions[first:])
        return known.stored.partitions[first:]

    def reserve_producer_ids(self, count: int) -> int:
        first = self._next_producer_id
        self._next_producer_id += count
        try:
            self._write_state()
        except OSError as error:
            self._next_producer_id = first
            raise self._refused("reserve producer ids", error) from error
        return first

    # -- starting

    def _refuse_something_else(self) -> None:
        names = {entry.name for entry in self.path.iterdir()}
        if META in names:
            if STATE not in names:
                raise ConfigurationError(
                    f"the data folder {self.path} was written by Apache Kafka, not by brokerlite; give another one"
                )
        elif others := sorted(names - _OURS):
            raise ConfigurationError(
                f"the data folder {self.path} holds something else ({others[0]}); give an empty or a new one"
            )

    def _take_lock(self) -> None:
        self._lock = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._lock, 20, 0).decode(errors="replace").strip()
            raise ConfigurationError(
                f"the data folder {self.path} is in use by another broker (process {holder or 'unknown'}); "
                "stop it, or give another folder"
            ) from None
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, f"{os.getpid()}\n".encode(), 0)

    def _release(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _take_identity(self, node_id: int, cluster_id: str | None) -> bool:
        """Say whose folder it is, or see whose; whether it is a new one."""
        meta = self.path / META
        if not meta.exists():
            self.cluster_id = cluster_id or short_id(uuid.uuid4())
            properties = {
                "version": "1",
                "cluster.id": self.cluster_id,
                "node.id": str(node_id),
                "directory.id": short_id(uuid.uuid4()),
            }
            self._write_state()
            checkpoints.replace(meta, build_properties(Properties(properties)))
            return True
        known = parse_properties(meta.read_bytes()).entries
        self.cluster_id = known.get("cluster.id", "")
        if known.get("node.id") != str(node_id):
            raise ConfigurationError(
                f"the data folder {self.path} belongs to node {known.get('node.id')}, and this is node {node_id}; "
                "give the node's own id or another folder"
            )
        if cluster_id not in (None, self.cluster_id):
            raise ConfigurationError(
                f"the data folder {self.path} belongs to cluster {self.cluster_id}, not {cluster_id}"
            )
        return False

    def _recover(self, new: bool) -> None:
        marker = self.path / CLEAN_SHUTDOWN
        clean = marker.exists()
        marker.unlink(missing_ok=True)
        self._next_producer_id, self._leader_epoch, topics = self._read_state()
        shorter = not (clean or new)
        points = self._read_recovery_points()
        for topic in topics:
            name = topic.stored.name
            for index, segments in enumerate(topic.partitions):
                if segments.folder.is_dir():
                    producers = segments.open(
                        clean=clean, recovery_point=points.get((name, index), 0), leader_epoch=self._leader_epoch
                    )
                    topic.stored.partitions[index] = Partition(segments, producers)
                else:
                    segments.create(topic.stored.topic_id)
                    shorter = True
            self._topics[name] = topic
        self._tidy()
        partitions = [segments for topic in self._topics.values() for segments in topic.partitions]
        self._lead(partitions, shorter)
        self.recovered = Recovered(
            "folder made" if new else "folder opened" if clean else "folder recovered after an unclean shutdown",
            len(self._topics),
            len(partitions),
            sum(segments.truncated for segments in partitions),
        )

    def _lead(self, partitions: list[PartitionSegments], shorter: bool) -> None:
        """Lead all partitions, in a new epoch if a log may be ``shorter`` than what was acknowledged.

        The disk must hold the epoch before anything is written in it: a later start must not take the same.
        """
        known = self._leader_epoch
        self._leader_epoch = max([known, *(segments.epochs.current for segments in partitions)]) + shorter
        if partitions:
            self._write_recovery_points()  # as they were found: what was lost is not on the disk any more
        if self._leader_epoch != known:
            self._write_state()
            if self._sync:
                for name in (STATE, RECOVERY_POINTS, "."):
                    checkpoints.sync(self.path / name)
        for segments in partitions:
            segments.lead(self._leader_epoch)

    def _new_topic(self, name: str, topic_id: uuid.UUID, partitions: int, configs: Mapping[str, str]) -> _Topic:
        interval = int(configs.get("index.interval.bytes", self._interval))
        parts = [PartitionSegments(self.path / f"{name}-{i}", interval, self._settled) for i in range(partitions)]
        stored = Stored(name, topic_id, dict(configs), [Partition(segments, Producers()) for segments in parts])
        return _Topic(stored, parts)

    def _settled(self, settle: Chore, then: Chore) -> None:
        """A partition has sealed a segment: have the disk hold it, and note how far it does."""

        def chore() -> None:
            if self._sync:
                settle()
                self._write_recovery_points()
            then()

        self._chore(chore)

    def _tidy(self) -> None:
        """Remove what was being deleted; set aside what belongs to no topic."""
        known = {segments.folder for topic in self._topics.values() for segments in topic.partitions}
        for path in list(self.path.iterdir()):
            if not path.is_dir() or path in known or path.name.endswith(_STRAY):
                continue
            if path.name.endswith(_DELETED):
                shutil.rmtree(path, ignore_errors=True)
            elif (path / "partition.metadata").exists():
                self._set_aside_if_there(path)

    def _set_aside_if_there(self, folder: Path) -> None:
        if folder.exists():
            stray = folder.with_name(f"{folder.name[:_LONGEST_NAME]}.{uuid.uuid4().hex}{_STRAY}")
            folder.rename(stray)
            log.warning("a folder of no known topic is set aside", extra={"folder": str(stray)})

    # -- the small files

    def _read_state(self) -> tuple[int, int, list[_Topic]]:
        """The next producer id, the leader epoch, and the topics as `broker.json` names them."""
        path = self.path / STATE
        try:
            state = json.loads(path.read_text())
            if state["version"] != _VERSION:
                raise ConfigurationError(f"{path} has version {state['version']}; this program knows {_VERSION}")
            topics = [
                self._new_topic(name, uuid.UUID(entry["id"]), entry["partitions"], entry["configs"])
                for name, entry in state["topics"].items()
            ]
            return int(state["next_producer_id"]), int(state.get("leader_epoch", 0)), topics
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigurationError(
                f"{path} is damaged ({type(error).__name__}: {error}); restore it, or give another folder"
            ) from None

    def _write_state(self) -> None:
        state = {
            "version": _VERSION,
            "next_producer_id": self._next_producer_id,
            "leader_epoch": self._leader_epoch,
            "topics": {
                topic.stored.name: {
                    "id": str(topic.stored.topic_id),
                    "partitions": len(topic.partitions),
                    "configs": topic.stored.configs,
                }
                for topic in self._topics.values()
            },
        }
        path = self.path / STATE
        checkpoints.replace(path, json.dumps(state, indent=1).encode())
        if self._sync:
            self._chore(lambda: checkpoints.sync(path))

    def _read_recovery_points(self) -> dict[tuple[str, int], int]:
        return checkpoints.read_offsets(self.path / RECOVERY_POINTS)

    def _write_recovery_points(self) -> None:
        points = {
            (name, index): segments.recovery_point
            for name, topic in list(self._topics.items())
            for index, segments in enumerate(topic.partitions)
        }
        checkpoints.write_offsets(self.path / RECOVERY_POINTS, points)

    def _refused(self, what: str, error: OSError) -> KafkaStorageError:
        log.error("the disk refused to %s: %s", what, error, extra={"folder": str(self.path)})
        return KafkaStorageError(f"cannot {what} in {self.path}: {error.strerror or error}")
