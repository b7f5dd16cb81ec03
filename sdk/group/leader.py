"""Implements the duties of a classic group's leader: divides the partitions, and watches for changes.

Rules:
- The assignor may be the user's own, so it runs outside of the core.
- The leader watches the topics of the whole group. It begins a rebalance when their partitions change or, if members
  have racks, when partitions get replicas in other racks.
- A missing topic does not delay a rebalance. The leader keeps looking for it for a while, and begins a rebalance if it
  appears. It waits only for topics that had partitions before, and at most `KNOWN_TOPIC_GRACE`.

Source: ConsumerCoordinator.java, onLeaderElected.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar, cast

from ottla.codec.apis.sync_group import SyncGroupRequestAssignment
from ottla.errors import OttlaError
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.cluster.metadata import KNOWN_TOPIC_GRACE
from ottla.sdk.core import ClientCore
from ottla.sdk.group.assignors import Assignor, Member, Partitions, build_assigned
from ottla.sdk.logs import logger
from ottla.sdk.steps import Outside, Steps

log = logger("ottla.sdk.consumer")

T = TypeVar("T")

Assignments = tuple[SyncGroupRequestAssignment, ...]


class Leader:
    """Divides and watches partitions while its member is the leader; idle otherwise.

    Args:
        changed: called, inside the core, with the reason why the partitions have to be divided again.
    """

    def __init__(self, core: ClientCore, group: str, changed: Callable[[str, float], None]) -> None:
        self._core, self._group, self._changed = core, group, changed
        self._watched: dict[str, Callable[[], None]] = {}
        """The topics of the whole group, each with the function that releases its metadata."""
        self._counts: dict[str, int] = {}
        """The number of partitions of each topic at the last assignment."""
        self._racks: Mapping[TopicPartition, frozenset[str]] = {}
        """The racks of each partition at the last assignment, if a member has a rack."""
        core.metadata.observers.append(self._metadata_changed)

    def assign(self, assignor: Assignor, members: Sequence[Member], *, skip: bool) -> Steps[Assignments]:
        """Divide the partitions of all topics to which members subscribe.

        Args:
            skip: only watch the topics, because the coordinator has kept the assignment (KIP-814).
        """
        topics = sorted({topic for each in members for topic in each.topics})
        self._watch(topics)
        yield from self._know(topics)
        self._counts = self._counted()
        self._racks = self._core.cluster.racks(self._watched) if any(each.rack for each in members) else {}
        missing = sorted(name for name, count in self._counts.items() if not count)
        if missing:
            log.warning("subscribed topics do not exist", extra={"group": self._group, "topics": missing})
            for name in missing:
                self._core.metadata.topic(name, self._core.now)  # if it appears, `_metadata_changed` notices
        if skip:
            return ()
        partitions = Partitions({name: count for name, count in self._counts.items() if count}, self._racks)

        def divide() -> Assignments:
            divided = assignor.assign(partitions, members)
            _check(divided, partitions, members)
            return tuple(
                SyncGroupRequestAssignment(member_id=member_id, assignment=build_assigned(places))
                for member_id, places in divided.items()
            )

        return (yield from run_assignor(assignor.name, divide))

    def _know(self, topics: Sequence[str]) -> Steps[None]:
        """Wait until the partitions of ``topics`` are known; a missing topic has none."""
        topic, now = self._core.metadata.topic, self._core.now
        known = [topic(name, now, grace=KNOWN_TOPIC_GRACE if self._counts.get(name) else 0.0) for name in topics]
        try:
            for each in known:
                yield each
        finally:
            for each in known:
                each.cancel()

    def resign(self) -> None:
        """Stop watching: another member leads, or this client has left the group."""
        self._watch(())

    def close(self) -> None:
        self.resign()
        self._core.metadata.observers.remove(self._metadata_changed)

    def _watch(self, topics: Sequence[str]) -> None:
        held = {
            name: self._watched.pop(name) if name in self._watched else self._core.metadata.hold(name)
            for name in topics
        }
        for release in self._watched.values():
            release()
        self._watched = held
        if not topics:
            self._counts, self._racks = {}, {}

    def _counted(self) -> dict[str, int]:
        topics = self._core.cluster.topics
        return {name: len(topics[name].partitions) if name in topics else 0 for name in self._watched}

    def _metadata_changed(self, now: float) -> None:
        """Begin a rebalance if partitions, or the racks of their replicas, have changed."""
        if not self._counts:
            return
        counted = self._counted()
        changed = sorted(name for name, count in counted.items() if count and count != self._counts.get(name))
        if changed:
            self._changed(f"the partitions of {', '.join(changed)} changed", now)
        elif self._racks:
            # Only added racks count: a node that is down is missing from the metadata, and its racks with it, until it
            # is back.
            racks = self._core.cluster.racks(self._watched)
            if any(each - self._racks.get(place, frozenset()) for place, each in racks.items()):
                self._changed("partitions have replicas in other racks", now)


def _check(divided: Mapping[str, Sequence[TopicPartition]], partitions: Partitions, members: Sequence[Member]) -> None:
    """Raise `ValueError` for a division that members could not carry out, so that the assignor gets the blame."""
    known = {each.member_id for each in members}
    given: set[TopicPartition] = set()
    for member, places in divided.items():
        if member not in known:
            raise ValueError(f"it names member {member!r}, which is not in the group")
        for topic, index in places:
            if not 0 <= index < partitions.get(topic, 0):
                raise ValueError(f"it names {topic}-{index}, which does not exist, or which no member asked for")
            if (topic, index) in given:
                raise ValueError(f"it names {topic}-{index} twice")
            given.add((topic, index))


def run_assignor(name: str, call: Callable[[], T]) -> Steps[T]:
    """Run ``call``, which calls an assignor, outside of the core: it may be the user's own, and raise anything."""

    def failed(error: BaseException) -> OttlaError:
        return OttlaError(f"assignor '{name}' failed: {type(error).__name__}: {error}")

    def guarded() -> T:
        try:
            return call()
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            raise failed(error) from error

    try:
        return cast("T", (yield Outside(guarded)))
    except (KeyboardInterrupt, SystemExit) as error:  # it ends the program, too: the driver raises it
        raise failed(error) from error
