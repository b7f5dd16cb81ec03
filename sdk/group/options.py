"""The options of a group's member."""

from collections.abc import Sequence
from dataclasses import replace

from ottla.errors import ConfigurationError
from ottla.late_dataclass import dataclass
from ottla.sdk import kafka_values as kafka
from ottla.sdk.group.assignors import ASSIGNORS, Assignor
from ottla.sdk.options import option, within_bounds


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberOptions:
    """Options of `ottla.sdk.client.Client.consumer` that only a member of a group uses; durations in seconds."""

    assignors: str | Sequence[str | Assignor] = option(
        ("range", "cooperative-sticky"), {"partition.assignment.strategy": kafka.assignors}
    )
    """How the group divides partitions, best first: ``"range"``, ``"roundrobin"``, ``"sticky"``,
    ``"cooperative-sticky"``, or your own. All members must have one in common. Rebalances stop no member only if every
    assignor offered is cooperative."""
    instance_id: str | None = option(None, {"group.instance.id": kafka.text})
    """Makes this a static member, which keeps its partitions if it restarts within ``session_timeout``; unique in the
    group."""
    session_timeout: float = option(45.0, {"session.timeout.ms": kafka.milliseconds})
    """Seconds without a heartbeat after which the group removes this member."""
    heartbeat_interval: float = option(3.0, {"heartbeat.interval.ms": kafka.milliseconds})
    """Seconds between two heartbeats."""
    max_poll_interval: float = option(300.0, {"max.poll.interval.ms": kafka.milliseconds})
    """Seconds between two requests for a batch after which this member leaves the group."""

    def checked(self) -> "MemberOptions":
        """Return the options, checked, with objects for assignors; a consumer that is no member ignores its options.

        Raises:
            ConfigurationError: an assignor is unknown, or the durations contradict each other.
        """
        assignors = self.chosen_assignors()
        if self.instance_id is not None and not isinstance(self.instance_id, str):
            raise ConfigurationError(f"instance_id must be a string or None, not {self.instance_id!r}")
        if self.instance_id == "":
            raise ConfigurationError("instance_id must not be empty: use a name that is unique in the group, or None")
        within_bounds(self)
        if self.heartbeat_interval >= self.session_timeout:
            raise ConfigurationError("heartbeat_interval must be below session_timeout, best a third of it")
        return replace(self, assignors=assignors)

    def chosen_assignors(self) -> tuple[Assignor, ...]:
        """The assignors as objects; raises `ConfigurationError` for an unknown name."""
        chosen: list[Assignor] = []
        for each in [self.assignors] if isinstance(self.assignors, str) else self.assignors:
            if isinstance(each, str) and each not in ASSIGNORS:
                known = ", ".join(ASSIGNORS)
                raise ConfigurationError(f"assignor {each!r} is unknown: choose {known}, or pass an object")
            assignor = ASSIGNORS[each] if isinstance(each, str) else each
            if not callable(getattr(assignor, "assign", None)):
                raise ConfigurationError(f"assignor {each!r} is not a name, and has no method `assign`")
            chosen.append(assignor)
        if not chosen:
            raise ConfigurationError("a member of a group needs an assignor")
        return tuple(chosen)
