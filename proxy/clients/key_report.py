"""Collects which clients put keys where the partitioner of a topic would not: the content of ``/report``.

Rules:
- Everything is bounded: topics, clients, samples, and the keys that are looked at in a second. Topics and clients
  beyond their bounds are counted together, under `OTHER`.
- Counts are of all records that the proxy reads. Hot keys, the partitioner of a client, and keys in several partitions
  come from the keys that the report looks at: some of each batch, `LOOKS_PER_SECOND` at most.
- The report of a topic begins again when its rule or its partition count changes. Batches that were read under a former
  rule are not counted in it (`RoutedTopics.are_current`).
- Longer keys than `LONGEST_KEY` are counted, but neither looked at nor shown: to hash them takes too long.
- Keys are hashed with a secret of the process, unless the operator asks for the keys: equal keys have equal hashes, and
  the hash of a guessed key cannot be computed.

Source: Metwally, Agrawal, El Abbadi, "Efficient Computation of Frequent and Top-k Elements in Data Streams"
(Space-Saving).
"""

import math
from collections import Counter
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any, NamedTuple

from ottla.codec.partitioners import PARTITIONERS
from ottla.proxy.clients.batches import Origin
from ottla.proxy.clients.key_scan import LOOKS, FoundKeys
from ottla.proxy.routing import Routes
from ottla.proxy.topic_rule import Mode
from ottla.server_metrics import LONGEST_LABEL, OTHER

MOST_TOPICS = 100
MOST_CLIENTS = 500
"""The most clients of all topics together."""
SAMPLES = 5
"""The most samples of each kind for each client."""
LOOKS_PER_SECOND = 1000
"""About 5 ms of processor time."""
_BURST = 100 * LOOKS
"""The most looks that are saved up, so that clients which send seldom are looked at."""
_HOT = 64
"""Keys that the sketch of a topic counts."""
_SHOWN = 10
"""Hot keys in the report."""
_HOTTER = 3
"""A hot key is this many times as frequent as the average of the other keys, even after three standard deviations."""
_WATCHED = 32
"""Keys of a client whose partitions are watched at a time."""
_WATCH_LASTS = 1000
"""After so many looks at a client's keys other keys are watched."""
_ENOUGH = 20
"""Looks from which on a client's partitioner is named."""
_LONGEST_KEY = 100
"""Characters of a key in the report; the rest is cut off."""


class HeavyHitters:
    """The most frequent keys of a stream, in bounded memory, by Space-Saving.

    A key that makes up more than one in ``size`` of the stream is always among them. A count is too high by at most
    the count of the key that was replaced.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._counts: dict[str, int] = {}
        self._above: dict[str, int] = {}
        """By how much a count may be too high."""

    def add(self, key: str) -> None:
        counts = self._counts
        if key in counts:
            counts[key] += 1
        elif len(counts) < self._size:
            counts[key], self._above[key] = 1, 0
        else:
            least = min(counts, key=counts.__getitem__)
            self._above[key] = counts.pop(least)
            del self._above[least]
            counts[key] = self._above[key] + 1

    def top(self, most: int) -> list[tuple[str, int]]:
        """The most frequent keys, with a count that each has reached for certain."""
        certain = ((key, count - self._above[key]) for key, count in self._counts.items())
        return sorted((each for each in certain if each[1] > 1), key=lambda each: (-each[1], each[0]))[:most]

    def hot(self, most: int) -> list[tuple[str, int]]:
        """Those of the `top` that stand out from the others: none of a stream whose keys are equally frequent."""
        total, others = sum(self._counts.values()), max(len(self._counts) - 1, 1)
        return [
            (key, count)
            for key, count in self.top(most)
            if count - 3 * math.sqrt(count) >= _HOTTER * (total - count) / others
        ]


class ClientId(NamedTuple):
    """A client in the report."""

    client_id: str
    software: str


class ClientKeys:
    """The keys of one client in one topic."""

    def __init__(self) -> None:
        self._records = self._with_key = self._misplaced = 0
        self._modes: dict[Mode, None] = {}
        """The modes of the topic under which the client sent records, in their order."""
        self._samples: list[tuple[str, int, int]] = []
        """Key, partition chosen, partition of the key."""
        self._looked = 0
        self._matches = Counter[str]()
        """Partitioner -> how many of the looked at keys it would put where the client did."""
        self._watched: dict[str, set[int]] = {}
        self._scattered = 0
        """Watched keys that were in several partitions."""
        self._scattered_samples: dict[str, list[int]] = {}

    @property
    def missing_samples(self) -> int:
        return SAMPLES - len(self._samples)

    @property
    def misplaced(self) -> int:
        return self._misplaced

    def count(self, mode: Mode, records: int, keyless: int, misplaced: int) -> None:
        self._modes[mode] = None
        self._records += records
        self._with_key += records - keyless
        self._misplaced += misplaced

    def sample(self, key: str, chosen: int, partition: int) -> None:
        """Keep a misplaced key as a sample, unless there are enough."""
        if self.missing_samples > 0 and (key, chosen, partition) not in self._samples:
            self._samples.append((key, chosen, partition))

    def look(self, key: bytes, shown: str, chosen: int, partitions: int) -> None:
        """Look at a key that the client put in the partition ``chosen``."""
        self._looked += 1
        self._matches.update(name for name, place in PARTITIONERS.items() if place(key, partitions) == chosen)
        if self._looked % _WATCH_LASTS == 0:
            self._watched.clear()
        places = self._watched.get(shown)
        if places is None:
            if len(self._watched) < _WATCHED:
                self._watched[shown] = {chosen}
        elif chosen not in places and len(places) < SAMPLES:
            places.add(chosen)
            self._scattered += len(places) == 2
            if shown in self._scattered_samples or len(self._scattered_samples) < SAMPLES:
                self._scattered_samples[shown] = sorted(places)

    @property
    def partitioner(self) -> str | None:
        """The partitioner that explains where all keys went which the report looked at, if there is just one."""
        alike = [name for name, count in self._matches.items() if count == self._looked]
        return alike[0] if len(alike) == 1 and self._looked >= _ENOUGH else None

    def facts(self) -> dict[str, Any]:
        return {
            "records": self._records,
            "records_with_key": self._with_key,
            "modes": [mode.value for mode in self._modes],
            "misplaced": self._misplaced,
            "partitioner": self.partitioner,
            "samples": [
                {"key": key, "partition": chosen, "partition_of_key": partition}
                for key, chosen, partition in self._samples
            ],
            "keys_in_several_partitions": {
                "keys": self._scattered,
                "samples": [{"key": key, "partitions": places} for key, places in self._scattered_samples.items()],
            },
        }


class TopicKeys:
    """The keys of one topic."""

    def __init__(self, routes: Routes) -> None:
        self.routes = routes
        self.clients: dict[ClientId, ClientKeys] = {}
        self._hot = HeavyHitters(_HOT)
        self._looked = 0

    def look(self, shown: str) -> None:
        self._looked += 1
        self._hot.add(shown)

    def facts(self) -> dict[str, Any]:
        """Everything but the clients."""
        return {
            "partitioner": self.routes.partitioner,
            "partitions": self.routes.partitions,
            "looked_at": self._looked,
            "hot_keys": [{"key": key, "share": round(count / self._looked, 4)} for key, count in self._hot.hot(_SHOWN)],
        }


class KeyReport:
    """Collects the report.

    Args:
        secret: the key of the hash.
        shows_keys: the report has the keys themselves.
    """

    def __init__(self, secret: bytes, *, shows_keys: bool) -> None:
        self._secret, self.shows_keys = secret, shows_keys
        self._topics: dict[str, TopicKeys] = {}
        self._clients = 0
        self._looks, self._looked_at = float(_BURST), 0.0

    def client(self, topic: str, routes: Routes, origin: Origin) -> ClientKeys:
        """The keys of a client in a topic; a topic with another rule or partition count begins again."""
        known = self._topics.get(topic)
        if known is None and len(self._topics) >= MOST_TOPICS:
            topic = OTHER
            known = self._topics.get(topic)
        if known is None or (known.routes != routes and topic != OTHER):
            self._clients -= len(known.clients) if known is not None else 0
            known = self._topics[topic] = TopicKeys(routes)
        named = ClientId((origin.client_id or "")[:LONGEST_LABEL], origin.software)
        found = known.clients.get(named)
        if found is None:
            if self._clients >= MOST_CLIENTS:
                named = ClientId(OTHER, "")
            else:
                self._clients += 1
            found = known.clients.setdefault(named, ClientKeys())
        return found

    def may_look(self, now: float) -> bool:
        """Whether the report may look at the keys of another batch; takes these looks from its allowance."""
        self._looks = min(self._looks + (now - self._looked_at) * LOOKS_PER_SECOND, _BURST)
        self._looked_at = now
        if self._looks < LOOKS:
            return False
        self._looks -= LOOKS
        return True

    def take(self, topic: str, client: ClientKeys, routes: Routes, partition: int, found: FoundKeys) -> None:
        """Take the examples and the looked at keys of a batch that a client put in ``partition``."""
        for _, key, place in found.examples:
            if client.missing_samples > 0 and key is not None:
                client.sample(self._shown(key), partition, place)
        if found.looked:
            known = self._topics.get(topic) or self._topics[OTHER]
            for key in (key for _, key, _ in found.looked if key is not None):
                shown = self._shown(key)
                known.look(shown)
                if not routes.fans_out:  # there the client chooses no partition
                    client.look(key, shown, partition, routes.partitions)

    def _shown(self, key: bytes) -> str:
        if self.shows_keys:
            return key[: 4 * _LONGEST_KEY].decode(errors="backslashreplace")[:_LONGEST_KEY]
        return blake2b(key, digest_size=8, key=self._secret).hexdigest()

    def topics(self) -> Iterator[tuple[str, dict[str, Any], Iterator[dict[str, Any]]]]:
        """Yield each topic: its name, its facts, and its clients, those with the most misplaced keys first."""
        for name, topic in list(self._topics.items()):
            ranked = sorted(topic.clients.items(), key=lambda each: (-each[1].misplaced, each[0]))
            yield name, topic.facts(), ({**named._asdict(), **keys.facts()} for named, keys in ranked)
