"""The rule of a topic, as the operator writes it."""

import fnmatch
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from ottla.codec.partitioners import PARTITIONERS
from ottla.config_file import one_of
from ottla.errors import ConfigurationError

DEFAULT_PARTITIONER = "murmur2"
LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
"""Valid topic names. Source: Topic.java."""
OF_STREAMS = re.compile(
    r".*-(changelog|repartition|subscription-(registration|response)-topic)"
    r"|.+-KTABLE-FK-JOIN-SUBSCRIPTION-(REGISTRATION|RESPONSE)-\d+-topic"
)
"""Internal topics of Kafka Streams. Source: StreamsResetter.java, matchesInternalTopicFormat."""
_GLOB = re.compile(r"[*?\[]")
"""What tells a glob from a name."""


class Mode(Enum):
    """How the proxy handles the records of a topic."""

    OBSERVE = "observe"
    """Records pass unchanged; keys in another partition than the partitioner chooses are counted."""
    REJECT = "reject"
    """Batches with a key in another partition than the partitioner chooses are refused; all others pass unchanged."""
    REWRITE = "rewrite"
    """Records with a key go to the partition that the partitioner chooses."""
    FAN_OUT = "fan-out"
    """Clients see one partition, to which they can only write; its records are spread as in mode `rewrite`."""
    COPY = "copy"
    """As `rewrite`, and further topics get the same records."""

    __hash__ = object.__hash__  # Enum's is a call in Python, and requests look modes up

    @cached_property
    def moves(self) -> bool:
        """Whether the proxy itself sends the records to the partitions of their keys."""
        return self in (Mode.REWRITE, Mode.FAN_OUT, Mode.COPY)


@dataclass(frozen=True, kw_only=True)
class TopicRule:
    """``'GLOB=MODE[:PARTITIONER[:PARTITIONS]]'``: how the proxy handles topics whose names match.

    Mode `copy` names the topics that get the copies first: ``'GLOB=copy:TOPIC[,TOPIC…][:PARTITIONER[:PARTITIONS]]'``.

    Raises:
        ConfigurationError: the glob is empty, the partitioner unknown, the number of partitions is not 1 to 2147483647,
            or no topic can have a name to which mode `copy` copies.
    """

    glob: str
    """As in a shell: ``*``, ``?``, ``[a-z]``; case-sensitive. Internal topics of Kafka Streams match their full name
    only."""
    mode: Mode
    partitioner: str = DEFAULT_PARTITIONER
    partitions: int | None = None
    """How many partitions keys go to; ``None``: the partition count when the proxy first sees the topic."""
    copies: tuple[str, ...] = ()
    """In mode `copy`, the topics that get the records as well. Each has a rule with mode `rewrite` or `fan-out`."""

    def __post_init__(self) -> None:
        if not self.glob:
            raise ConfigurationError("a topic rule begins with the topics' name or glob, as in 'flights=rewrite'")
        if not _GLOB.search(self.glob) and not LEGAL_NAME.fullmatch(self.glob):
            raise ConfigurationError(
                f"{self.glob!r:.100} matches no topic: names have up to 249 letters, digits, dots, _ and -"
            )
        if self.mode is not Mode.OBSERVE and self.glob.startswith("__"):
            raise ConfigurationError(
                f"{self.glob!r}: topics that begin with __ are the brokers' own: no rule applies to them"
            )
        if self.partitioner not in PARTITIONERS:
            known = ", ".join(PARTITIONERS)
            raise ConfigurationError(f"partitioner {self.partitioner!r} of topic {self.glob!r} is not one of {known}")
        if self.partitions is not None and not 1 <= self.partitions < 2**31:
            raise ConfigurationError(f"topic {self.glob!r} must have 1 to 2147483647 partitions, not {self.partitions}")
        self._check_copies()

    def _check_copies(self) -> None:
        if bool(self.copies) != (self.mode is Mode.COPY):
            raise ConfigurationError(
                f"mode copy of topic {self.glob!r} needs the topics that get the copies, as in 'flights=copy:archive'"
                if not self.copies
                else f"topic {self.glob!r} has mode {self.mode.value}: only mode copy copies records"
            )
        for topic in self.copies:
            if not LEGAL_NAME.fullmatch(topic) or topic.startswith("__"):
                raise ConfigurationError(
                    f"{topic!r:.100} cannot get copies of topic {self.glob!r}: write the full name of a topic that "
                    "does not begin with __"
                )
            if self.copies.count(topic) > 1:
                raise ConfigurationError(f"topic {self.glob!r} is copied to {topic} twice")

    @property
    def text(self) -> str:
        """The rule without partitioner and partitions."""
        targets = f":{','.join(self.copies)}" if self.copies else ""
        return f"{self.glob}={self.mode.value}{targets}"


def parse_rule(text: str) -> TopicRule:
    """Parse a rule ``'GLOB=MODE[:PARTITIONER[:PARTITIONS]]'``.

    For example ``'flights=rewrite'``, ``'audit-*=observe:crc32'``, ``'flights=copy:archive'`` or, with the default
    partitioner, ``'flights=rewrite::6'``.

    Raises:
        ConfigurationError: the text is not a rule; the message shows the syntax.
    """
    glob, equals, treatment = text.rpartition("=")
    if not equals:
        raise ConfigurationError(
            f"{text!r} is not a topic rule: write GLOB=MODE[:PARTITIONER[:PARTITIONS]], as in 'flights=rewrite'"
        )
    return rule_of(glob.strip(), treatment)


def never_applied(rules: Sequence[TopicRule], of_command_line: int = 0) -> Iterator[str]:
    """Describe each rule whose topics all have an earlier rule.

    Args:
        of_command_line: how many of the rules, the first ones, are not of the file.
    """
    for number, rule in enumerate(rules):
        for earlier, first in enumerate(rules[:number]):
            if _covers(first.glob, rule.glob):
                origin = "on the command line" if earlier < of_command_line <= number else "before it"
                yield f"the rule {rule.text!r} never applies: {first.text!r} {origin} comes first"
                break


def _covers(first: str, second: str) -> bool:
    """Whether a glob matches all topics of another one, as far as that is easy to see."""
    if first == second:
        return True
    if OF_STREAMS.fullmatch(second):
        return False  # a glob does not match these
    if not _GLOB.search(second):
        return fnmatch.fnmatchcase(second, first)
    beginning = first.removesuffix("*")
    return first.endswith("*") and not _GLOB.search(beginning) and second.startswith(beginning)


def rule_of(glob: str, treatment: str) -> TopicRule:
    mode, *rest = treatment.strip().split(":", 3)
    try:
        chosen = Mode(mode)
    except ValueError:
        known = one_of(each.value for each in Mode)
        raise ConfigurationError(f"mode {mode!r} of topic {glob!r} is not {known}") from None
    copies: tuple[str, ...] = ()
    if chosen is Mode.COPY and rest:
        copies, rest = tuple(each.strip() for each in rest[0].split(",")), rest[1:]
    if len(rest) < 2:
        return TopicRule(glob=glob, mode=chosen, partitioner=rest[0] if rest else DEFAULT_PARTITIONER, copies=copies)
    partitioner, partitions = rest[0], ":".join(rest[1:])
    if not re.fullmatch("[0-9]{1,10}", partitions):
        raise ConfigurationError(
            f"{partitions!r:.100} is not a number of partitions of topic {glob!r}, as in 'rewrite::6'"
        )
    return TopicRule(
        glob=glob,
        mode=chosen,
        partitioner=partitioner or DEFAULT_PARTITIONER,
        partitions=int(partitions),
        copies=copies,
    )
