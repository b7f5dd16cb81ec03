"""Tracks the near replicas that leaders recommend instead of themselves (KIP-392), and avoids failing ones.

    used ── a Fetch fails there, or metadata lacks it ──► avoided ── a pause ──► probed ── it answers ──► used
                                                             ▲                      │
                                                             └─── it does not ──────┘

Rules:
- A leader keeps recommending a dead replica until the cluster notices, and forever if only this client cannot reach it.
  Meanwhile the client sends the leader a Fetch version that cannot recommend a replica. Leaving out the client's rack
  would not be enough: brokers may also choose by the client's address or id.
- A probe is a Fetch without partitions, sent while the leaders are read. So it delays no reading, even if the replica
  never answers.
- If a replica sends nothing for some seconds, the client closes the connection and reads from the leader. It keeps
  waiting for a response that only arrives slowly.
- A replica that answers a probe may still fail to return records, so pauses become short again only after it has
  answered a Fetch for records.
- A replica that refuses one partition may serve others, so only that partition stays with its leader for a while. Not
  after the first refusal, because partitions move, and the leader then names another replica. The count starts again
  once a replica has returned records of the partition.

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
from ottla.sdk.consume.partitions.position import Position
from ottla.sdk.events import Node
from ottla.sdk.logs import about, logger

if TYPE_CHECKING:
    from ottla.sdk.core import ClientCore
    from ottla.sdk.timers import Timer

log = logger("ottla.sdk.consumer")

WITHOUT_REPLICAS = 10
"""The last version of Fetch in which a leader cannot recommend a replica."""
_PAUSE = 2.0
"""Seconds before a failed replica is tried again; four times as long each time, up to `metadata_max_age`."""


UNHEARD_LIMIT = 2.0
"""Seconds, beyond a Fetch's maximum wait, without a byte or a connection from a near replica before it has failed."""


class FollowerDelays:
    """Gives up a Fetch to a near replica that stays silent.

    Args:
        wait: seconds for which the replica may hold the Fetch back.
        now: when the Fetch was sent.
    """

    def __init__(self, core: "ClientCore", node: Node, channel: str, wait: float, now: float) -> None:
        self._core, self._node, self._channel, self._since = core, node, channel, now + wait
        self._timer = core.later(self._since + UNHEARD_LIMIT, self._look)

    def cancel(self) -> None:
        """Stop watching, because the Fetch has ended."""
        self._timer.cancel()

    def _look(self, now: float) -> None:
        core, where = self._core, (self._node.id, self._channel)
        over = max(self._since, core.heard_at(*where), core.muted_until(*where)) + UNHEARD_LIMIT
        self._timer = core.later(over if over > now else now + UNHEARD_LIMIT, self._look)
        if over <= now:
            core.give_up(self._node, f"a near replica has sent nothing for {UNHEARD_LIMIT:g} s", now, self._channel)


class NearReplicas:
    """Tracks the near replicas of one fetcher, which sends its requests on ``channel``."""

    def __init__(self, core: "ClientCore", channel: str) -> None:
        self._core, self._channel = core, channel
        self._failures: dict[int, int] = {}
        """The consecutive failures of each replica that was ever recommended."""
        self._avoided: dict[int, Timer] = {}
        """Failed replicas until they answer, each with the timer of its probe."""
        self._by_leader: dict[int, set[int]] = {}
        """The replicas that each leader has recommended."""
        self._unknown: set[int] = set()
        """Replicas that were recommended before the metadata contained them."""
        self._refused: dict[TopicPartition, tuple[int, float]] = {}
        """Partitions that replicas refused: the consecutive refusals, and until when to read from the leader."""

    def __contains__(self, replica: int) -> bool:
        """Whether the replica may be read from."""
        return replica not in self._avoided

    def against(self, replica: int, place: TopicPartition, now: float) -> str:
        """Why the partition must not be read from the replica now; empty if it may."""
        if replica in self._avoided:
            return "which cannot be reached"
        return "which refused it" if place in self._refused and now < self._refused[place][1] else ""

    def recommended(self, leader: int, replica: int, now: float) -> None:
        """Take note that a leader recommends ``replica``."""
        self._by_leader.setdefault(leader, set()).add(replica)
        self._failures.setdefault(replica, 0)
        if replica not in self._core.cluster.nodes and replica not in self._avoided:
            self._unknown.add(replica)
            self.failed(replica, "the metadata does not contain it", now)

    def learned(self) -> None:
        """Stop avoiding replicas that were only missing from the metadata, and are in it now."""
        for replica in self._unknown & self._core.cluster.nodes.keys():
            self._unknown.remove(replica)
            self._allow(replica)

    def may_redirect(self, leader: int, now: float) -> bool:
        """Whether this leader might recommend a replica that is avoided, or that has just refused a partition."""
        if not self._by_leader.get(leader, set()).isdisjoint(self._avoided):
            return True
        cluster = self._core.cluster
        kept = (cluster.leader(*place) for place, (_, until) in self._refused.items() if now < until)
        return any(each is not None and each.id == leader for each in kept)

    def answered(self, node: int) -> None:
        """Take note that the replica answered a Fetch for records."""
        if node in self._failures:
            self._failures[node] = 0
        self._allow(node)

    def wait_for(
        self, node: Node, positions: Iterable[Position], channel: str, wait: float, now: float
    ) -> FollowerDelays | None:
        """Watch a Fetch of these partitions, if the node is the near replica of one of them."""
        if node.id not in self._failures or all(each.replica != node.id for each in positions):
            return None
        return FollowerDelays(self._core, node, channel, wait, now)

    def failed(self, node: int, why: object, now: float) -> None:
        """Avoid the replica, because a Fetch failed; a failure that several requests notice counts once."""
        if node not in self._failures or node in self._avoided:
            return
        pause = self._pause(self._failures[node])
        self._failures[node] += 1
        self._avoided[node] = self._core.later(now + pause, partial(self._probe, node))
        extra = {"node": node, "seconds": round(pause), "why": str(why)}
        log.warning("a near replica failed, reading from the leaders until it answers", extra=extra)

    def refused(self, place: TopicPartition, node: int, why: object, now: float) -> None:
        """Take note that a replica refused this partition, or returned damaged records of it."""
        times, _ = self._refused.get(place, (0, now))
        pause = self._pause(times - 1) if times else 0.0
        self._refused[place] = times + 1, now + pause
        if pause:
            extra = about(place) | {"node": node, "seconds": round(pause), "why": str(why)}
            log.warning("a near replica refused a partition again, reading from its leader for a while", extra=extra)

    def accepted(self, place: TopicPartition) -> None:
        """Forget refusals of the partition: a replica returned intact records, or the partition is no longer read."""
        self._refused.pop(place, None)

    def _pause(self, failures: int) -> float:
        return min(_PAUSE * 4.0 ** min(failures, 8), self._core.options.metadata_max_age)

    def _probe(self, replica: int, now: float) -> None:
        """Probe the replica."""
        node = self._core.cluster.nodes.get(replica)
        if node is None:  # it has left the cluster; once it is back, leaders recommend it again
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
