"""Near replicas, which leaders recommend in place of themselves (KIP-392), and those of them that do not answer.

    used ── a Fetch fails there, or metadata do not know it ──► avoided ── a pause ──► probed ── it answers ──► used
                                                                   ▲                      │
                                                                   └─── it does not ──────┘

Rules:
- A leader goes on to recommend a replica that has died until the cluster notices, and for ever one that only we do not
  reach. While it may do so, it is asked in a version that has no word for it. To hide our rack would not do: brokers
  may choose by the client's address or id as well.
- To probe is to ask for nothing at all, while leaders are read from. So it delays no reading, not even where the
  replica is silent and its answer never comes.
- A replica that sends nothing for some seconds is not waited for any longer, as there is the leader: the Fetch ends
  with its connection. What only arrives slowly is waited for, as everywhere.
- A replica that answers that may still bring no records: pauses are short again only once a Fetch for some was
  answered.
- A replica that refuses one partition may serve the others: only that partition keeps to its leader for a while. Not
  the first time, for partitions move, and leaders then name another replica; and it is the first again once a replica
  brought records of it.

Source: AbstractFetch.java, selectReadReplica; ReplicaManager.scala, findPreferredReadReplica, KafkaApis.scala.
"""

from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

from ottla.codec.apis.fetch import FetchResponse
from ottla.errors import OttlaError
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.connection import requests
from ottla.sdk.connection.exchange import Exchange
from ottla.sdk.consume.positions import Position
from ottla.sdk.events import Node
from ottla.sdk.logs import logger

if TYPE_CHECKING:
    from ottla.sdk.core import ClientCore
    from ottla.sdk.timers import Timer

log = logger("ottla.sdk.consumer")

WITHOUT_REPLICAS = 10
"""The last version of Fetch in which no leader recommends anybody."""
_PAUSE = 2.0
"""Seconds before a replica that failed is tried again; four times as long each time, up to `metadata_max_age`."""


SILENCE = 2.0
"""Seconds beyond the wait of a Fetch in which nothing has arrived from a near replica, or it was not even reached."""


class Patience:
    """Waits for a Fetch that a near replica was sent at ``now``, which may hold it back for ``wait`` seconds."""

    def __init__(self, core: "ClientCore", node: Node, channel: str, wait: float, now: float) -> None:
        self._core, self._node, self._channel, self._since = core, node, channel, now + wait
        self._timer = core.later(self._since + SILENCE, self._look)

    def cancel(self) -> None:
        """It has ended."""
        self._timer.cancel()

    def _look(self, now: float) -> None:
        core, where = self._core, (self._node.id, self._channel)
        over = max(self._since, core.heard_at(*where), core.muted_until(*where)) + SILENCE
        self._timer = core.later(over if over > now else now + SILENCE, self._look)
        if over <= now:
            core.give_up(self._node, f"a near replica has sent nothing for {SILENCE:g} s", now, self._channel)


class NearReplicas:
    """Of one fetcher, whose requests go by ``channel``."""

    def __init__(self, core: "ClientCore", channel: str) -> None:
        self._core, self._channel = core, channel
        self._failures: dict[int, int] = {}
        """The replicas that were ever recommended, and how often in a row each has failed."""
        self._avoided: dict[int, Timer] = {}
        """Those that failed, until they answer, each with when it is probed."""
        self._by_leader: dict[int, set[int]] = {}
        """The replicas that each leader has recommended."""
        self._unknown: set[int] = set()
        """Those that the metadata did not know when they were recommended."""
        self._refused: dict[TopicPartition, tuple[int, float]] = {}
        """Partitions that replicas refused: how often in a row, and until when they keep to their leaders."""

    def __contains__(self, replica: int) -> bool:
        """It may be read from, as far as is known."""
        return replica not in self._avoided

    def against(self, replica: int, place: TopicPartition, now: float) -> str:
        """Why it must not be asked for records of the partition at this moment; empty where it may."""
        if replica in self._avoided:
            return "which cannot be reached"
        return "which refused it" if place in self._refused and now < self._refused[place][1] else ""

    def recommended(self, leader: int, replica: int, now: float) -> None:
        """A leader has named ``replica`` in place of records."""
        self._by_leader.setdefault(leader, set()).add(replica)
        self._failures.setdefault(replica, 0)
        if replica not in self._core.cluster.nodes and replica not in self._avoided:
            self._unknown.add(replica)
            self.failed(replica, "the metadata do not know it", now)

    def learned(self) -> None:
        """There are new metadata: what was only unknown is avoided no more."""
        for replica in self._unknown & self._core.cluster.nodes.keys():
            self._unknown.remove(replica)
            self._allow(replica)

    def may_redirect(self, leader: int, now: float) -> bool:
        """This leader might send us to a replica that is avoided, or has just refused a partition."""
        if not self._by_leader.get(leader, set()).isdisjoint(self._avoided):
            return True
        cluster = self._core.cluster
        kept = (cluster.leader(*place) for place, (_, until) in self._refused.items() if now < until)
        return any(each is not None and each.id == leader for each in kept)

    def answered(self, node: int) -> None:
        """A Fetch for records was answered there."""
        if node in self._failures:
            self._failures[node] = 0
        self._allow(node)

    def wait_for(
        self, node: Node, positions: Iterable[Position], channel: str, wait: float, now: float
    ) -> Patience | None:
        """Watch over a Fetch of these partitions, where the node is the near replica of one of them."""
        if node.id not in self._failures or all(each.replica != node.id for each in positions):
            return None
        return Patience(self._core, node, channel, wait, now)

    def failed(self, node: int, why: object, now: float) -> None:
        """A Fetch came to nothing; one failure that several notice counts as one."""
        if node not in self._failures or node in self._avoided:
            return
        pause = self._pause(self._failures[node])
        self._failures[node] += 1
        self._avoided[node] = self._core.later(now + pause, partial(self._probe, node))
        extra = {"node": node, "seconds": round(pause), "why": str(why)}
        log.warning("a near replica cannot be read from: the leaders are, until it answers", extra=extra)

    def refused(self, place: TopicPartition, node: int, why: object, now: float) -> None:
        """A replica answers, but not for this partition, or what it has of it is damaged."""
        times, _ = self._refused.get(place, (0, now))
        pause = self._pause(times - 1) if times else 0.0
        self._refused[place] = times + 1, now + pause
        if pause:
            extra = {"topic": place[0], "partition": place[1], "node": node, "seconds": round(pause), "why": str(why)}
            log.warning("a near replica refuses a partition again: for a while its leader is read", extra=extra)

    def accepted(self, place: TopicPartition) -> None:
        """A replica brought records of the partition, which are sound; or it is not read any more."""
        self._refused.pop(place, None)

    def _pause(self, failures: int) -> float:
        return min(_PAUSE * 4.0 ** min(failures, 8), self._core.options.metadata_max_age)

    def _probe(self, replica: int, now: float) -> None:
        """Does it answer?"""
        node = self._core.cluster.nodes.get(replica)
        if node is None:  # it left the cluster, and if it is back, leaders say so
            self._allow(replica)
            return
        timer = self._avoided[replica]

        def ended(answer: FetchResponse | OttlaError, now: float) -> None:
            if self._avoided.get(replica) is not timer:
                return
            self._allow(replica)
            if isinstance(answer, OttlaError):
                self.failed(replica, answer, now)

        until = now + self._core.options.request_timeout
        exchange = Exchange(requests.fetch_nothing(), ended, until, background=True)
        self._core.submit(node, exchange, now, self._channel)

    def _allow(self, replica: int) -> None:
        if timer := self._avoided.pop(replica, None):
            timer.cancel()

    def close(self) -> None:
        for replica in list(self._avoided):
            self._allow(replica)
