"""Finds the topics of subscriptions: by name, and by regular expressions in RE2's syntax.

Rules:
- A pattern must match the whole name of a topic. It finds only topics that the client may describe.
- RE2 takes time that is linear in the length of the name. Python's own regular expressions may never finish, and have
  another syntax; so a broker without RE2 refuses patterns.
- A client with Read on one group may send any pattern, so its length, and the memory that RE2 uses for it, are bounded.
  By default RE2 takes 8 MiB and 0.3 s for `\\pL{300}`.

Source: GroupMetadataManager.java (throwIfRegularExpressionIsInvalid), TopicRegexResolver.java, Utils.java
(computeGroupHash), KIP-848.
"""

import functools
import hashlib
import importlib
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.brokerlite.machines.topics.topics import HIDDEN, Topics
from ottla.errors import InvalidRegularExpression, UnsupportedVersion

if TYPE_CHECKING:
    from uuid import UUID

_LONGEST = 2000
"""Characters of a pattern; RE2 takes 50 microseconds for a character class like `\\pL`."""
_MEMORY = 256 * 2**10
"""Bytes that RE2 may use for a pattern: enough for a list of a thousand topics."""
_KEPT = 100
"""Compiled patterns that stay in memory."""
_HASH = 8
"""Bytes of the hash of the subscribed topics."""


ANOTHER_START = -1
"""Not a `Topics.version`, which counts from 0 at each start."""


class ResolvedPattern(NamedTuple):
    """The topics that a pattern matched.

    Attributes:
        version: the version of the topics, `Topics.version`; `ANOTHER_START`: counted since another start of the
            broker.
        timestamp: when, in milliseconds since 1970.
    """

    topics: frozenset[str]
    version: int
    timestamp: int


@functools.lru_cache(maxsize=_KEPT)
def compiled(pattern: str) -> Any:
    """Return a compiled pattern.

    Raises:
        InvalidRegularExpression: RE2 does not accept it, or it is too long, or would take too much memory.
        UnsupportedVersion: RE2 is not installed.
    """
    try:
        re2 = importlib.import_module("re2")
    except ImportError:
        raise UnsupportedVersion(
            f"SubscribedTopicRegex `{pattern}` needs RE2, which this broker lacks: "
            "install it where the broker runs with `pip install 'ottla[re2]'`"
        ) from None
    if len(pattern) > _LONGEST:
        raise InvalidRegularExpression(
            f"SubscribedTopicRegex has {len(pattern)} characters; this broker takes at most {_LONGEST}."
        )
    options = re2.Options()
    options.max_mem = _MEMORY
    options.log_errors = False  # otherwise RE2 writes them to stderr
    try:
        return re2.compile(pattern, options=options)
    except re2.error as error:
        why = error.args[0] if error.args else error
        why = why.decode(errors="replace") if isinstance(why, bytes) else why
        raise InvalidRegularExpression(
            f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {why}."
        ) from None


def resolve(pattern: str, topics: Topics, describable: Callable[[str], bool], timestamp: int) -> ResolvedPattern:
    """Find the topics that a pattern matches.

    Raises:
        InvalidRegularExpression, UnsupportedVersion: see `compiled`.
    """
    matches = compiled(pattern).fullmatch
    found = (name for name in topics.by_name if name not in HIDDEN and matches(name) and describable(name))
    return ResolvedPattern(frozenset(found), topics.version, timestamp)


def ids_of(names: Iterable[str], topics: Topics) -> "frozenset[UUID]":
    """Return the ids of the topics that exist."""
    return frozenset(topics.by_name[name].topic_id for name in names if name in topics.by_name)


def counts_of(names: Iterable[str], topics: Topics) -> "Mapping[UUID, int]":
    """Return the number of partitions of each topic that exists."""
    known = (topics.by_name[name] for name in names if name in topics.by_name)
    return {topic.topic_id: len(topic.partitions) for topic in known}


def hash_of(names: Iterable[str], topics: Topics) -> int:
    """Return a hash that changes when one of the topics is created, deleted, recreated or grown; 0 without topics.

    Kafka's own hash differs; after a move from Apache Kafka the group therefore rebalances once.
    """
    counts = counts_of(names, topics)
    if not counts:
        return 0
    digest = hashlib.blake2b(digest_size=_HASH)
    for topic_id in sorted(counts, key=str):
        digest.update(topic_id.bytes + counts[topic_id].to_bytes(4, "big"))
    return int.from_bytes(digest.digest(), "big", signed=True)
