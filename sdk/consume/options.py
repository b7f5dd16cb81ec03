"""A consumer's options: checked once, then immutable."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import field
from numbers import Real
from typing import Literal

from ottla.errors import ConfigurationError
from ottla.late_dataclass import dataclass
from ottla.sdk import kafka_values as kafka
from ottla.sdk.arguments import integer, string
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.consume.partitions.position import Start
from ottla.sdk.consume.partitions.starts import Where
from ottla.sdk.group.options import MemberOptions
from ottla.sdk.options import option, within_bounds


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
    """The options of `ottla.sdk.client.Client.consumer`; a group's member has `MemberOptions`, too."""

    group: str | None = option(None, {"group.id": kafka.text})
    """Share the topics with all members of this group, in any language, and commit offsets to it."""
    pattern: str | Sequence[str] = ()
    """Instead of topics, regular expressions that the whole name must match (one or several); new topics are found
    within half a minute."""
    deny: str | Sequence[str] = ()
    """With ``pattern``, regular expressions that exclude topics whose whole name matches."""
    pattern_re2: str | None = None
    """Instead of topics, a regular expression in RE2's syntax that the broker matches with whole names; with
    ``group_protocol="consumer"``."""
    assign: Mapping[TopicPartition, Where | Literal["committed"]] | None = None
    """Instead of topics, ``{("t", 0): where}``, without sharing partitions with a group; with ``group`` also
    ``"committed"``, and commits go to that group. Without shared partitions, as without a group, ``listener`` and
    ``instance_id`` are refused, and ``assignors`` and the durations below are ignored, with a warning in the log."""
    start: Where | Literal["error"] = option("beginning", {"auto.offset.reset": kafka.start})
    """Where to begin in a partition for which the group has no committed offset, or without a group. ``"error"``, for
    groups: raise `NoCommittedOffset` until you seek."""
    reset: Where | Literal["error"] = "error"
    """Where to continue if a position is outside the log, because retention deleted its records."""
    isolation: Literal["read_uncommitted", "read_committed"] = option(
        "read_uncommitted", {"isolation.level": kafka.isolation}
    )
    """``"read_committed"`` hides records of open and aborted transactions."""
    auto_commit: float | None = option(None, {"auto.commit.interval.ms": kafka.interval})
    """Commit every so many seconds; a batch counts as processed when you ask for the next one. By default you have to
    commit yourself."""
    max_records: int | None = option(None, {"max.poll.records": kafka.number})
    """The most records of a batch, for handlers that are slow per record, or process many concurrently; by default a
    batch has all records of the partition in one response, bounded by ``partition_max_bytes`` of `connect`."""

    def __post_init__(self) -> None:
        if self.deny and not self.pattern:
            raise ConfigurationError("deny goes with a pattern, as in pattern='orders-.*', deny='.*-test'")
        if self.pattern_re2 is not None and not (isinstance(self.pattern_re2, str) and self.pattern_re2):
            raise ConfigurationError(f"pattern_re2 must be a string that is not empty, not {self.pattern_re2!r}")
        if self.group is not None and (not isinstance(self.group, str) or not self.group):
            raise ConfigurationError(f"group must be a string that is not empty, not {self.group!r}")
        if self.max_records is not None and integer("max_records", self.max_records) < 1:
            raise ConfigurationError(f"max_records must be 1 or more, not {self.max_records}")
        if self.auto_commit is not None:
            if self.group is None:
                raise ConfigurationError("auto_commit needs a group, as in group='billing'")
            # This refuses NaN, too; `within_bounds` refuses values that are not numbers.
            if isinstance(self.auto_commit, Real) and not self.auto_commit > 0:
                raise ConfigurationError(f"auto_commit must be a positive number of seconds, not {self.auto_commit!r}")
        within_bounds(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerPlan:
    """A consumer's options in the machines' terms.

    Attributes:
        start: where to begin in a partition without a committed offset.
        matches: selects topics by pattern; ``None`` if topics are named.
        member: ``None`` if no group assigns the partitions.
    """

    start: Start
    topics: tuple[str, ...] = ()
    matches: TopicFilter | None = None
    member: MemberOptions | None = None
    options: ConsumerOptions = field(default_factory=ConsumerOptions)
