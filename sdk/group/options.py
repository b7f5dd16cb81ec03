"""The options of a group's member."""

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Literal

from ottla.errors import ConfigurationError
from ottla.late_dataclass import dataclass
from ottla.sdk import kafka_values as kafka
from ottla.sdk.group.assignors import ASSIGNORS, Assignor
from ottla.sdk.options import option, within_bounds

_PROTOCOLS = ("classic", "consumer", "auto")
_CLASSIC = ("assignors", "session_timeout", "heartbeat_interval")
"""Options of the classic protocol: with KIP-848, the broker's configuration decides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberOptions:
    """Options of `ottla.sdk.client.Client.consumer` that only a member of a group uses; durations in seconds."""

    group_protocol: Literal["classic", "consumer", "auto"] = option("auto", {"group.protocol": kafka.group_protocol})
    """How the group divides partitions. ``"classic"``: its leader, by one of ``assignors``. ``"consumer"``: the broker
    (KIP-848, Kafka 4.0 or newer); rebalances stop no member. ``"auto"``: as ``"consumer"`` if the cluster supports it,
    the group has no classic members, ``instance_id`` and the client's ``rack`` are not set, and ``assignors``,
    ``session_timeout`` and ``heartbeat_interval``, which belong to the classic protocol, have their defaults; else as
    ``"classic"``."""
    remote_assignor: str | None = option(None, {"group.remote.assignor": kafka.text})
    """With ``group_protocol="consumer"``, the broker's assignor, for example ``"uniform"`` or ``"range"``; by default
    the broker chooses."""
    assignors: str | Sequence[str | Assignor] = option(
        ("range", "cooperative-sticky"), {"partition.assignment.strategy": kafka.assignors}
    )
    """How the group divides partitions, best first: ``"range"``, ``"roundrobin"``, ``"sticky"``,
    ``"cooperative-sticky"``, or your own. All members must have one in common. Rebalances stop no member only if every
    assignor offered is cooperative."""
    instance_id: str | None = option(None, {"group.instance.id": kafka.text})
    """Makes this a static member, which keeps its partitions if it restarts before its session times out; unique in
    the group. By default it uses the classic protocol, in which a new process replaces a killed one at once."""
    session_timeout: float = option(45.0, {"session.timeout.ms": kafka.milliseconds})
    """In the classic protocol, seconds without a heartbeat after which the group removes this member; else the
    broker's ``group.consumer.session.timeout.ms`` decides."""
    heartbeat_interval: float = option(3.0, {"heartbeat.interval.ms": kafka.milliseconds})
    """In the classic protocol, seconds between two heartbeats; else ``group.consumer.heartbeat.interval.ms`` of the
    broker."""
    max_poll_interval: float = option(300.0, {"max.poll.interval.ms": kafka.milliseconds})
    """Seconds between two requests for a batch after which this member leaves the group."""

    def checked(self) -> "MemberOptions":
        """Return the options, checked, with objects for assignors; a consumer that is no member ignores its options.

        Raises:
            ConfigurationError: an assignor is unknown, or the durations contradict each other.
        """
        protocol = self._check_protocol()
        assignors = self.chosen_assignors()
        if self.instance_id is not None and not isinstance(self.instance_id, str):
            raise ConfigurationError(f"instance_id must be a string or None, not {self.instance_id!r}")
        if self.instance_id == "":
            raise ConfigurationError("instance_id must not be empty: use a name that is unique in the group, or None")
        within_bounds(self)
        if self.heartbeat_interval >= self.session_timeout:
            raise ConfigurationError("heartbeat_interval must be below session_timeout, best a third of it")
        return replace(self, group_protocol=protocol, assignors=assignors)

    def _check_protocol(self) -> Literal["classic", "consumer", "auto"]:
        """Return the group protocol: classic instead of ``auto`` if an option of the classic one differs from its
        default, or for a static member. With KIP-848, Kafka refuses the successor of a killed static member until the
        session has timed out.
        """
        if self.group_protocol not in _PROTOCOLS:
            known = ", ".join(map(repr, _PROTOCOLS))
            raise ConfigurationError(f"group_protocol must be one of {known}, not {self.group_protocol!r}")
        values = {name: getattr(self, name) for name in _CLASSIC}
        values = {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}
        classic = [each.name for each in fields(self) if each.name in values and values[each.name] != each.default]
        if self.group_protocol == "consumer" and classic:
            raise ConfigurationError(
                f"{', '.join(classic)} and group_protocol='consumer' contradict each other: with it, the broker "
                "divides the partitions and sets the timeouts; leave them out, or choose group_protocol='classic'"
            )
        if self.remote_assignor is not None and self.group_protocol != "consumer":
            raise ConfigurationError("remote_assignor needs group_protocol='consumer': else a member divides them")
        if self.remote_assignor is not None and not (isinstance(self.remote_assignor, str) and self.remote_assignor):
            raise ConfigurationError(f"remote_assignor must be a name such as 'uniform', not {self.remote_assignor!r}")
        if self.group_protocol == "auto" and (classic or self.instance_id is not None):
            return "classic"
        return self.group_protocol

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
