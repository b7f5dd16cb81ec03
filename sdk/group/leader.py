"""What the leader of a classic group does beyond what every member does: it divides the partitions, and watches them.

Rules:
- The assignor may be the user's own, so it is handed out (`ClientCore.run`), and its result comes back as a later step.
- The leader watches the topics of the whole group, and begins a rebalance when their partitions change, or, where
  members have racks, get replicas in other racks.
- A topic that does not exist holds up no rebalance. It is looked for a while longer; should it appear, that is such a
  change. The leader waits only for topics that had partitions before, and no longer than `KNOWN_TOPIC_GRACE`.

Source: ConsumerCoordinator.java, onLeaderElected.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from ottla.codec.apis.sync_group import SyncGroupRequestAssignment
from ottla.errors import OttlaError
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.cluster.metadata import KNOWN_TOPIC_GRACE
from ottla.sdk.core import ClientCore
from ottla.sdk.group.assignors import Assignor, Member, Partitions, build_assigned
from ottla.sdk.logs import logger
from ottla.sdk.outcome import Outcome

log = logger("ottla.sdk.consumer")

T = TypeVar("T")

Assignments = tuple[SyncGroupRequestAssignment, ...]


class Leader:
    """The leader's duties of one member; idle while another leads.

    Args:
        changed: called, machine to machine, with why the partitions are to be divided again.
    """

    def __init__(self, core: ClientCore, group: str, changed: Callable[[str, float], None]) -> None:
        self._core, self._group, self._changed = core, group, changed
        self._watched: dict[str, Callable[[], None]] = {}
        """The topics of the whole group, and what ends their being watched."""
        self._counts: dict[str, int] = {}
        """How many partitions each of them had when they were assigned."""
        self._racks: Mapping[TopicPartition, frozenset[str]] = {}
        """Where these were then, if any member gave its rack."""
        core.metadata.observers.append(self._metadata_changed)

    def assign(self, assignor: Assignor, members: Sequence[Member], *, skip: bool, now: float) -> Outcome[Assignments]:
        """Divide the partitions of all topics that the members want.

        Args:
            skip: only watch them: the coordinator has kept the assignment.
        """
        outcome: Outcome[Assignments] = Outcome()
        topics = sorted({topic for each in members for topic in each.topics})
        self._watch(topics)
        left = len(topics)

        def known(now: float) -> None:
            if not outcome.done:
                self._divide(assignor, members, outcome, skip=skip)

        def arrived() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                self._core.soon(known)

        def ask(now: float) -> None:
            for name in topics:
                grace = KNOWN_TOPIC_GRACE if self._counts.get(name) else 0.0
                found = self._core.metadata.topic(name, now, grace=grace)
                found.when_done(arrived)
                outcome.when_done(found.cancel)

        self._core.soon(ask if topics else known)
        return outcome

    def resign(self) -> None:
        """Another leads, or nobody is a member here any more."""
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

    def _divide(
        self, assignor: Assignor, members: Sequence[Member], outcome: Outcome[Assignments], *, skip: bool
    ) -> None:
        """The partitions of the topics are known; those that do not exist have none."""
        self._counts = self._counted()
        self._racks = self._core.cluster.racks(self._watched) if any(each.rack for each in members) else {}
        missing = sorted(name for name, count in self._counts.items() if not count)
        if missing:
            log.warning("topics of the group do not exist", extra={"group": self._group, "topics": missing})
            for name in missing:
                self._core.metadata.topic(name, self._core.now)  # which `_metadata_changed` learns from
        if skip:
            outcome.succeed(())
            return
        partitions = Partitions({name: count for name, count in self._counts.items() if count}, self._racks)

        def assign() -> Assignments:
            divided = assignor.assign(partitions, members)
            return tuple(
                SyncGroupRequestAssignment(member_id=member_id, assignment=build_assigned(places))
                for member_id, places in divided.items()
            )

        run_assignor(self._core, assignor.name, assign, outcome)

    def _counted(self) -> dict[str, int]:
        topics = self._core.cluster.topics
        return {name: len(topics[name].partitions) if name in topics else 0 for name in self._watched}

    def _metadata_changed(self, now: float) -> None:
        """Other partitions need another assignment."""
        if not self._counts:
            return
        counted = self._counted()
        changed = sorted(name for name, count in counted.items() if count and count != self._counts.get(name))
        if changed:
            self._changed(f"the partitions of {', '.join(changed)} changed", now)
        elif self._racks:
            # Only what came is news: the racks of a node that is down are seen again when it is back.
            racks = self._core.cluster.racks(self._watched)
            if any(each - self._racks.get(place, frozenset()) for place, each in racks.items()):
                self._changed("partitions have replicas in other racks", now)


def run_assignor(core: ClientCore, name: str, call: Callable[[], T], outcome: Outcome[T]) -> None:
    """Have ``call``, which calls a user's assignor, run outside of the core; ``outcome`` is settled in a later step."""

    def run() -> None:
        result: T | OttlaError
        try:
            result = call()
        except BaseException as error:  # a user's own assignor may do anything
            result = OttlaError(f"assignor '{name}' failed: {type(error).__name__}: {error}")
            result.__cause__ = error
            if isinstance(error, (KeyboardInterrupt, SystemExit)):
                raise
        finally:
            with core.gate:
                core.soon(lambda now: outcome.settle(result))

    core.run(run)
