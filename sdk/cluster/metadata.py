"""Requests metadata, merges the responses, and answers callers that wait for a topic.

Rules:
- A connected node is asked; if none is connected, the next node in turn. If there is no answer within a second, another
  node is asked as well (`ottla.sdk.cluster.hedged_requests`).
- A request for all topics may take seconds if there are many. A caller that waits for a new topic does not wait for it:
  another node is asked for that topic alone.
- However many parts of the client ask, and however often, metadata is refreshed at most once per `retry_backoff`. The
  exceptions are sent at once: a topic or a first connection that a caller waits for, and the next address after one
  that failed. After a round in which no node gave metadata, these wait for the pause as well.
- If zeroconf found the bootstrap addresses, the client looks for them again after a round in which no node answered.
  After REBOOTSTRAP_REQUIRED the client forgets all nodes (KIP-1102).
- A client belongs to the first cluster that it connects to. It refuses metadata with another cluster id, and counts the
  node as failed: records, offsets and sequences of one cluster mean nothing in another. (Java and librdkafka log it and
  continue with the other cluster.) If the change is intended, open another client.
- If a node refuses this client's credentials, or the client does not trust the node, other nodes may still work, so the
  client asks them too. If no node of a round answers, waiting callers get the error at once: retrying would not help.
- While no node can be reached, the client remembers the addresses that it tried, and the error lists them.

Source: NetworkClient.java, DefaultMetadataUpdater; Metadata.java; ConsumerMetadata.java.
"""

import math
from collections.abc import Callable, Collection, Iterator

from ottla.codec.apis.metadata import MetadataResponse
from ottla.errors import (
    AuthenticationFailed,
    BrokerUnreachable,
    ConnectionLost,
    InconsistentClusterId,
    InvalidTopic,
    OttlaError,
    RebootstrapRequired,
    UnknownTopicOrPartition,
    broker_error,
)
from ottla.sdk.cluster.client_interface import MetadataClient
from ottla.sdk.cluster.cluster import Cluster, Topic
from ottla.sdk.cluster.failed_addresses import FailedAddresses, address
from ottla.sdk.cluster.hedged_requests import HedgedRequests
from ottla.sdk.cluster.held_topics import HeldTopics
from ottla.sdk.cluster.nodes import Nodes
from ottla.sdk.cluster.questions import Question, Questions, TopicWait
from ottla.sdk.events import Found, Node, logged
from ottla.sdk.logs import logger
from ottla.sdk.outcome import Outcome
from ottla.sdk.timers import Timer

log = logger("ottla.sdk")

MAX_TOPIC_NAME = 249
"""In characters. Source: Topic.java, MAX_NAME_LENGTH."""
UNKNOWN_TOPIC_GRACE = 5.0
"""Seconds for which brokers may answer "unknown" about a topic that is being created."""
KNOWN_TOPIC_GRACE = 1.0
"""Seconds for which brokers must answer "unknown" about a known topic before it counts as deleted: a broker that has
just started knows no topic."""


class Metadata:
    """Keeps ``cluster`` up to date for ``client``.

    Args:
        nodes: the nodes to ask in turn.
        findable: the driver can look for other bootstrap addresses.
    """

    def __init__(self, client: MetadataClient, cluster: Cluster, nodes: Nodes, *, findable: bool = False) -> None:
        self._client, self._options = client, client.options
        self.cluster, self._nodes = cluster, nodes
        self._findable, self._finding = findable, False
        self.updated_at = -math.inf
        """The time of the last update."""
        self.all_updated_at = -math.inf
        """The time of the last update of all held topics."""
        self.learned_of: Collection[str] = ()
        """The topics in the last response; other topics have not changed."""
        self.learned_all = False
        """The last response was about all held topics."""
        self._heard_since = math.inf
        """The first update since the last round in which every node failed; inf if none came yet."""
        self.observers: list[Callable[[float], None]] = []
        """Called after every update."""
        self._topics = HeldTopics(cluster, self._options.metadata_max_age)
        self._questions = Questions(cluster, self._topics)
        self._timer: Timer | None = None
        self._gave_none: set[int] = set()
        """Nodes that failed in this round."""
        self._requests = HedgedRequests(client, self._questions, self._gave_none, self._answered)
        self._rounds = 0
        """Failed rounds since the last update."""
        self._paused_until = -math.inf
        """When the next round may begin."""
        self._failures = FailedAddresses()
        self._denied: AuthenticationFailed | None = None
        """The last authentication failure since an update."""
        self._connecting: list[Outcome[None]] = []
        """Callers of `connect`: the first update settles them."""

    # -- for other parts of the client -------------------------------------------------------------------------------

    def connect(self, now: float) -> Outcome[None]:
        """Settled once any broker has returned metadata."""
        outcome: Outcome[None] = Outcome()

        def expire(now: float) -> None:
            outcome.fail(self.unreachable("cannot connect", self._options.connect_timeout))

        self._connecting.append(outcome)
        self._client.fail_on_close(outcome)
        outcome.when_done(self._client.later(now + self._options.connect_timeout, expire).cancel)
        self._ask_at(now)
        return outcome

    def topic(
        self,
        name: str,
        now: float,
        *,
        create: bool = False,
        fresh: bool = False,
        partitions: Collection[int] = (),
        grace: float = UNKNOWN_TOPIC_GRACE,
    ) -> Outcome[Topic]:
        """The topic, once it is known; requests its metadata if it is unknown, old, or must be ``fresh``.

        If the known topic lacks one of the ``partitions`` that the caller names, its metadata is requested too: it may
        have got more partitions. If the response lacks them as well, the topic is returned as it is. Such a request
        waits for `retry_backoff`, because callers may name a wrong partition in a loop.

        Args:
            create: the broker may create the topic.
            fresh: ignore metadata that was requested before this call.
            grace: seconds for which the broker may answer `UnknownTopicOrPartition` because it is creating the topic.

        Fails with the broker's error (`UnknownTopicOrPartition`, `InvalidTopic`, `TopicAuthorizationFailed`), or with
        `BrokerUnreachable`.
        """
        outcome: Outcome[Topic] = Outcome()
        known = self.cluster.topics.get(name)
        since = now if fresh else -math.inf
        if known is not None and not fresh and any(each not in known.partitions for each in partitions):
            fresh, since = True, max(now, self.updated_at + self._options.retry_backoff)
        if not known and (why := unnameable(name)):
            outcome.fail(InvalidTopic(why))
        elif known and not fresh and not self._topics.is_old(name):
            outcome.succeed(known)
        elif self._client.closed:
            outcome.fail(self._client.closed)
        else:
            self._client.fail_on_close(outcome)
            seconds = min(grace, self._options.api_timeout / 2)
            self._questions.add(TopicWait(name, create, outcome, seconds, since))
            waits = self._options.api_timeout
            expire = self._client.later(now + waits, lambda now: outcome.fail(self.why_no_topic(name, waits)))
            outcome.when_done(expire.cancel)
            self._ask_at(max(now, since))
        return outcome

    @property
    def asked_since(self) -> float:
        """The time of the first request since the last update; NaN if there was none."""
        return self._requests.since

    def heard_for(self, since: float, now: float) -> float:
        """For how many seconds after ``since`` brokers have answered metadata requests; 0 while none does.

        A topic that running brokers do not know for long was deleted. A broker that has just started may not know an
        existing topic.
        """
        until = now if math.isnan(self.asked_since) else self.asked_since
        return max(0.0, until - max(since, self._heard_since))

    def why_no_topic(self, name: str, waited: float) -> OttlaError:
        """The error for a topic that is still unknown after ``waited`` seconds."""
        code = self.cluster.errors.get(name)
        if code is not None and not self._failures:
            return broker_error(code, f"topic {name!r}")
        return self.unreachable(f"topic {name!r}", waited)

    def why_no_leader(self, topic: str, partition: int) -> OttlaError:
        """The error for a leaderless partition."""
        code = self.cluster.errors.get(topic)
        where = f"{topic}-{partition}"
        return broker_error(code, where, repeatable=True) if code else ConnectionLost(f"{where} has no leader")

    def unreachable(self, what: str, seconds: float) -> BrokerUnreachable:
        """The error for "no broker answered", with each address and how it failed."""
        tried = "; ".join(f"{where}: {why}" for where, why in self._reasons().items())
        if self._failures.answered:  # so the address is right, and the reason follows it
            return BrokerUnreachable(f"{what}: no usable connection within {seconds:g} s. Tried {tried}")
        advice = "check the address, and that a broker listens there"
        return BrokerUnreachable(f"{what}: no broker answered within {seconds:g} s ({advice}). Tried {tried}")

    def _reasons(self) -> dict[str, str]:
        """Why each address failed, and the addresses that have not answered yet."""
        reasons = self._failures.reasons
        known = {each.id: each for each in (*self._nodes.seeds, *self.cluster.nodes.values())}
        unanswered = [known[each] for each in self._requests.nodes if each in known]
        for node in unanswered or ([] if reasons else self._nodes.seeds):
            silent = self._client.missing or f"no answer yet{self._client.usual_cause(node)}"
            reasons.setdefault(address(node), silent)
        return reasons

    @property
    def waited_for(self) -> bool:
        """Whether a caller waits for metadata."""
        return bool(self._connecting) or self._questions.waited_for

    def tried(self, most: int) -> str:
        """At most ``most`` of the addresses that failed or have not answered yet, and why."""
        said = [f"{where}: {why}" for where, why in self._reasons().items()]
        return "; ".join(said[:most]) + (f"; and {len(said) - most} more" if len(said) > most else "")

    def explain(self, now: float) -> Iterator[str]:
        """Lines for people about failed addresses, old metadata and awaited topics; none if all is well."""
        for where, why in self._failures.reasons.items():
            yield f"metadata: {where} failed: {why}"
        if self._failures and -math.inf < self.all_updated_at < now:
            yield f"metadata: last updated {now - self.all_updated_at:.1f} s ago"
        for each in self._questions.waits:
            if not each.outcome.done:
                yield f"topic {each.name!r}: waiting for its metadata"

    def hold(self, name: str) -> Callable[[], None]:
        """Keep the topic's metadata fresh; return a function that releases the topic. See `HeldTopics`."""
        # A caller that looks up many topics, and then uses them one by one, holds topics whose metadata is old. Each is
        # requested alone: otherwise each would cost a refresh of all topics.
        if name not in self._topics.held and self._topics.is_old(name):
            self._client.later(self.updated_at + self._options.retry_backoff, lambda now: self._renew(name, now))
        return self._topics.hold(name)

    def _renew(self, name: str, now: float) -> None:
        """Request the metadata of a held topic if it is still old."""
        if name in self._topics.held and self._topics.is_old(name) and not self._client.closed:
            self.topic(name, now, grace=0.0)

    def forget(self, name: str) -> None:
        """Drop the topic's metadata, which proved wrong; the next use of the topic requests it again."""
        self._topics.forget(name)

    # -- asking ------------------------------------------------------------------------------------------------------

    def refresh(self, now: float, delay: float = 0.0) -> None:
        """Request metadata within ``delay`` seconds, but not sooner than `retry_backoff` after the last update.

        Frequent calls are cheap.
        """
        when = max(now + delay, self.updated_at + self._options.retry_backoff)
        self._questions.want_all(when)
        self._ask_at(when)

    def suspect(self, now: float, delay: float) -> None:
        """Refresh because a connection broke, or a node does not answer: the cluster may have changed."""
        if self._client.closed:
            return
        if self._failures:  # a retry is scheduled already
            self._questions.want_all(now + delay)
        else:
            self.refresh(now, delay)

    def _ask_at(self, when: float) -> None:
        timer = self._timer
        if timer and timer.call and timer.when <= when:
            return
        if timer:
            timer.cancel()
        self._timer = self._client.later(when, self._ask)

    def _ask(self, now: float) -> None:
        self._timer = None
        self._questions.forget_gone()
        earliest = self._paused_until
        if not (self._failures or self.waited_for):
            # The request was scheduled at once for a caller that no longer waits.
            earliest = max(self._questions.all_at, self.updated_at + self._options.retry_backoff)
        if now < earliest:
            self._ask_at(earliest)
            return
        self._requests.ask(now)

    # -- answers -----------------------------------------------------------------------------------------------------

    def _answered(self, node: Node, answer: MetadataResponse | OttlaError, question: Question, now: float) -> None:
        if isinstance(answer, OttlaError):
            self._questions.failed(question)
            self._failed(node, answer, now)
            return
        why = self.cluster.refusal(answer)
        if why is None:
            self._learn(answer, question, now)
            return
        self._questions.failed(question)
        match why:
            case RebootstrapRequired():
                self._rebootstrap(node, now)
            case InconsistentClusterId(detail=what):
                self._refuse_foreign(node, answer.cluster_id, what, now)
            case _:
                self._failed(node, why, now)

    def _failed(self, node: Node, error: OttlaError, now: float) -> None:
        self._failures.add(node, error)
        self._gave_none.add(node.id)
        if isinstance(error, AuthenticationFailed):
            self._denied = error
        log.info("metadata request failed", extra={"node": logged(node), "address": address(node), "why": str(error)})
        left = self._nodes.ids - self._gave_none
        if left.difference(self._requests.nodes):
            self._ask_at(now)
            return
        self._rounds += 1
        self._heard_since = math.inf
        self._paused_until = now + self._client.backoff(self._rounds)
        self._ask_at(self._paused_until)
        if not left:
            self._round_failed()

    def _round_failed(self) -> None:
        """Act on a round in which every node failed."""
        self._gave_none.clear()
        if self._denied:
            for outcome in self._take_connecting():
                outcome.fail(self._denied)
            self._questions.refuse(self._denied)
            self._denied = None
        if self._findable and not self._finding:
            self._finding = True
            self._client.find()

    def _take_connecting(self) -> list[Outcome[None]]:
        connecting, self._connecting = self._connecting, []
        return connecting

    def found(self, event: Found, now: float) -> None:
        """Use the bootstrap addresses that the driver found."""
        self._finding = False
        if event.addresses and not self._client.closed:
            self._nodes.replace(event.addresses)
            self._new_start()
            self._ask_at(now)

    def _new_start(self) -> None:
        """Forget failed nodes and the pause that follows a failed round."""
        self._gave_none.clear()
        self._rounds, self._paused_until = 0, -math.inf

    def _rebootstrap(self, node: Node, now: float) -> None:
        """Start again from the bootstrap addresses, as the broker asks (REBOOTSTRAP_REQUIRED)."""
        why = "a broker asks the client to start again from the bootstrap addresses"
        log.warning(why, extra={"node": logged(node)})
        self.cluster.nodes.clear()
        self._questions.want_all(now)
        self._client.give_up_all(why.replace("a broker", "the broker"), now)
        self._failed(node, RebootstrapRequired(address(node)), now)

    def _refuse_foreign(self, node: Node, other: str | None, what: str, now: float) -> None:
        """Refuse metadata from an address that leads to another cluster."""
        if node not in self._failures:
            log.error(
                "an address leads to another cluster, with other records and offsets, and its metadata is refused: "
                "check the bootstrap addresses, or restart the client if the change is intended",
                extra={"address": address(node), "cluster_known": self.cluster.cluster_id, "cluster_there": other},
            )
        self._client.give_up(node, what, now)
        self._failed(node, InconsistentClusterId(f"{address(node)}: {what}"), now)

    def _learn(self, answer: MetadataResponse, question: Question, now: float) -> None:
        self.updated_at, self._denied = now, None
        self._requests.settled()
        self.learned_of, self.learned_all = question.topics, question.about_all
        if question.about_all:
            self.all_updated_at = now
        self._heard_since = min(self._heard_since, now)
        self._failures.clear()
        self._new_start()
        self.cluster.update(answer)
        answered = {each.name for each in answer.topics}
        for name in question.topics:
            if name not in answered:
                self.cluster.drop(name)
                self.cluster.errors[name] = UnknownTopicOrPartition.code
        self._topics.learned(question.topics, now)
        self._questions.settle(question, now, self.heard_for)
        for observer in list(self.observers):
            observer(now)
        for outcome in self._take_connecting():
            outcome.succeed(None)
        self._client.nodes_changed(now)
        if self._timer is not None:  # it was scheduled before this update
            self._timer.cancel()
            self._timer = None
        self._ask_at(
            self._questions.answered(question, now, self._options.retry_backoff, self._options.metadata_max_age)
        )


def unnameable(topic: str) -> str:
    """Why no topic can have this name; empty if it fits into a request, so that the broker can check it."""
    try:
        topic.encode()
    except UnicodeEncodeError as error:
        return f"topic {topic!r:.80} cannot be encoded: {error.reason}"
    return f"topic {topic!r:.80} has {len(topic)} characters, more than 249" if len(topic) > MAX_TOPIC_NAME else ""
