"""A consumer's options: checked once, then immutable."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real

from ottla.errors import ConfigurationError
from ottla.sdk.arguments import integer, string
from ottla.sdk.consume.partitions.position import Start
from ottla.sdk.group.assignors import ASSIGNORS, Assignor
from ottla.sdk.group.membership import MemberOptions
from ottla.sdk.options import within_bounds


class TopicFilter:
    """Matches topics whose whole name matches one of ``pattern`` and none of ``deny``; ``str()`` is for messages.

    Raises:
        ConfigurationError: a pattern is not a regular expression.
    """

    def __init__(self, pattern: str | Sequence[str], deny: str | Sequence[str] = ()) -> None:
        self._allowed, self._denied = _compiled(pattern), _compiled(deny)

    def __call__(self, name: str) -> bool:
        return any(each.fullmatch(name) for each in self._allowed) and not any(
            each.fullmatch(name) for each in self._denied
        )

    def __str__(self) -> str:
        allowed, denied = (" or ".join(repr(each.pattern) for each in some) for some in (self._allowed, self._denied))
        return f"{allowed} without {denied}" if denied else allowed


def _compiled(given: str | Sequence[str]) -> list[re.Pattern[str]]:
    if isinstance(given, (str, bytes)):
        given = [given]
    try:
        return [re.compile(string("pattern or deny", each)) for each in given]
    except re.error as error:
        raise ConfigurationError(f"{error.pattern!r} is not a regular expression: {error}") from None
    except RecursionError:
        raise ConfigurationError("a regular expression is nested too deeply") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions:
    """See `ottla.sdk.client.Client.consumer`.

    Attributes:
        start: where to begin in a partition without a committed offset.
        matches: selects topics by pattern; ``None`` if topics are named.
        member: ``None`` if no group assigns the partitions.
        auto_commit: seconds between two commits of done batches.
        max_records: the maximum number of records per batch; ``None``: as many as arrived together.
    """

    start: Start
    topics: tuple[str, ...] = ()
    matches: TopicFilter | None = None
    group: str | None = None
    member: MemberOptions | None = None
    auto_commit: float | None = None
    max_records: int | None = None

    def __post_init__(self) -> None:
        if self.group is not None and (not isinstance(self.group, str) or not self.group):
            raise ConfigurationError(f"group must be a string that is not empty, not {self.group!r}")
        if self.max_records is not None and integer("max_records", self.max_records) < 1:
            raise ConfigurationError(f"max_records must be 1 or more, not {self.max_records}")
        if self.auto_commit is None:
            return
        if self.group is None:
            raise ConfigurationError("auto_commit needs a group, as in group='billing'")
        # This refuses NaN, too; `within_bounds` refuses values that are not numbers.
        if isinstance(self.auto_commit, Real) and not self.auto_commit > 0:
            raise ConfigurationError(f"auto_commit must be a positive number of seconds, not {self.auto_commit!r}")


def member_options(
    assignors: Sequence[str | Assignor],
    instance_id: str | None,
    session_timeout: float,
    heartbeat_interval: float,
    max_poll_interval: float,
) -> MemberOptions:
    """Raises:
    ConfigurationError: an assignor is unknown, or the durations contradict each other.
    """
    chosen: list[Assignor] = []
    for each in [assignors] if isinstance(assignors, str) else assignors:
        if isinstance(each, str) and each not in ASSIGNORS:
            raise ConfigurationError(f"assignor {each!r} is unknown: choose {', '.join(ASSIGNORS)}, or pass an object")
        assignor = ASSIGNORS[each] if isinstance(each, str) else each
        if not callable(getattr(assignor, "assign", None)):
            raise ConfigurationError(f"assignor {each!r} is not a name, and has no method `assign`")
        chosen.append(assignor)
    if not chosen:
        raise ConfigurationError("a member of a group needs an assignor")
    if instance_id is not None and not isinstance(instance_id, str):
        raise ConfigurationError(f"instance_id must be a string or None, not {instance_id!r}")
    if instance_id == "":
        raise ConfigurationError("instance_id must not be empty: use a name that is unique in the group, or None")
    options = MemberOptions(
        assignors=tuple(chosen),
        instance_id=instance_id,
        session_timeout=session_timeout,
        heartbeat_interval=heartbeat_interval,
        max_poll_interval=max_poll_interval,
    )
    within_bounds(options)
    if heartbeat_interval >= session_timeout:
        raise ConfigurationError("heartbeat_interval must be below session_timeout, best a third of it")
    return options
