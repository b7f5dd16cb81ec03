"""Keeping the metadata: asks for them, learns from the answers, and serves those that wait for a topic.

Rules:
- A node that is connected is asked, else the next one in turn. If there is no answer within a second another is asked
  as well: a dead address costs a second at most.
- A question about all topics may take seconds where there are many. A caller who waits for a new topic does not wait
  for its answer: another node is asked for that topic alone.
- However many parts ask, and however often, metadata are refreshed once in `retry_backoff` at most. Only what a caller
  waits for (a topic that is not known, the first connection) and the next address after one that failed are asked for
  at once; and after a round in which no node gave metadata, nothing is before its pause is over.
- Bootstrap addresses that were found by zeroconf are looked for again after a round in which no node
  answered. A broker that answers REBOOTSTRAP_REQUIRED makes the client forget all nodes (KIP-1102).
- A client belongs to the first cluster that it learns of. Metadata of a cluster with another id are refused, and the
  node that gave them counts as one that failed: records, offsets and sequences of the one mean nothing in the other.
  (Java and librdkafka go on with the other cluster and log it.) If the change is meant, open another client.
- A node that does not trust this client, or that it does not trust, may be alone in that, so the others are asked. If
  no node of a round answers, those that wait are told at once: to go on asking would not help them.
- While no node can be reached, what was tried is kept for the error.

Source: NetworkClient.java, DefaultMetadataUpdater; Metadata.java; ConsumerMetadata.java.
"""

import math
from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

from ottla.addresses import format_address
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
from ottla.sdk.cluster.client import MetadataClient
from ottla.sdk.cluster.cluster import Cluster, Topic
from ottla.sdk.cluster.held import HeldTopics
from ottla.sdk.cluster.nodes import Nodes
from ottla.sdk.cluster.questions import Question, Questions, TopicWait
from ottla.sdk.connection import requests
from ottla.sdk.connection.exchange import Exchange
from ottla.sdk.events import Found, Node, logged
from ottla.sdk.logs import logger
from ottla.sdk.outcome import Outcome
from ottla.sdk.timers import Timer

log = logger("ottla.sdk")

HEDGE_DELAY = 1.0
"""Seconds without an answer after which another node is asked as well; doubled for each that is asked already."""
MAX_TOPIC_NAME = 249
"""Characters. Source: Topic.java, MAX_NAME_LENGTH."""
UNKNOWN_TOPIC_GRACE = 5.0
"""Seconds in which a topic that the broker is just creating may be unknown."""
KNOWN_TOPIC_GRACE = 1.0
"""Seconds for which brokers must deny a known topic before it counts as deleted: a broker that has just started knows
none."""


class Asked(NamedTuple):
    """A question that a node has not answered yet, and the timer that asks another node as well."""

    question: Question
    hedge: Timer


class Metadata:
    """The metadata of ``cluster``, kept up to date for ``client``.

    Args:
        nodes: those to ask in turn.
        findable: other bootstrap addresses can be looked for.
    """

    def __init__(self, client: MetadataClient, cluster: Cluster, nodes: Nodes, *, findable: bool = False) -> None:
        self._client, self._options = client, client.options
        self.cluster, self._nodes = cluster, nodes
        self._findable, self._finding = findable, False
        self.updated_at = -math.inf
        """When they were last learned."""
        self.all_updated_at = -math.inf
        """When those of all topics that are held were."""
        self.learned_of: Collection[str] = ()
        """The topics that the last answer was about: what is known of others is as it was."""
        self.learned_all = False
        """It was about all that are held."""
        self._heard_since = math.inf
        """Since when there was no round in which no node gave any."""
        self.asked_since = math.nan
        """When they were first asked for since then; NaN while nobody is asked."""
        self.observers: list[Callable[[float], None]] = []
        """Called after every update."""
        self._topics = HeldTopics(cluster, self._options.metadata_max_age)
        self._questions = Questions(cluster, self._topics)
        self._due: Timer | None = None
        self._asked: dict[int, Asked] = {}
        """Nodes that have not answered yet."""
        self._gave_none: set[int] = set()
        """Nodes that gave none in this round."""
        self._rounds = 0
        """Pauses since metadata were last learned."""
        self._paused_until = -math.inf
        """When the next round may begin."""
        self._troubles: dict[str, tuple[str, int]] = {}
        """Per address, why it could not be used, and how often that was tried; cleared by success."""
        self._denied: AuthenticationFailed | None = None
        """The last refusal since a node answered."""
        self._connecting: list[Outcome[None]] = []
        """What is settled by the first answer."""

    # -- what others want to know ------------------------------------------------------------------------------------

    def connect(self, now: float) -> Outcome[None]:
        """Settled once any broker has answered with metadata."""
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
        """The topic, once it is known; asks for it if need be, or if it is to be ``fresh``: as it is now.

        It is to be fresh, too, if it lacks one of the ``partitions`` that the caller names: it may have grown since. If
        the answer lacks them as well, the topic is given as it is. Such a question waits for `retry_backoff`: callers
        may name a wrong partition in a loop.

        Fails with the broker's error (`UnknownTopicOrPartition`, `InvalidTopic`, `TopicAuthorizationFailed`), the
        first only after ``grace`` seconds in which the broker may be creating it; or with `BrokerUnreachable`.
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
            self._questions.waits.append(TopicWait(name, create, outcome, seconds, since))
            waits = self._options.api_timeout
            expire = self._client.later(now + waits, lambda now: outcome.fail(self.why_no_topic(name, waits)))
            outcome.when_done(expire.cancel)
            self._ask_at(max(now, since))
        return outcome

    def heard_for(self, since: float, now: float) -> float:
        """For how many seconds since then brokers have given metadata when they were asked; 0 while none does.

        A topic that brokers do not know for long is gone; one that they did not know as they started may be there.
        """
        until = now if math.isnan(self.asked_since) else self.asked_since
        return max(0.0, until - max(since, self._heard_since))

    def why_no_topic(self, name: str, waited: float) -> OttlaError:
        """The error for a topic that is not known after so many seconds, as far as anybody said why."""
        code = self.cluster.errors.get(name)
        if code is not None and not self._troubles:
            return broker_error(code, f"topic {name!r}")
        return self.unreachable(f"topic {name!r}", waited)

    def why_no_leader(self, topic: str, partition: int) -> OttlaError:
        """The error for a partition without a leader."""
        code = self.cluster.errors.get(topic)
        where = f"{topic}-{partition}"
        return broker_error(code, where, repeatable=True) if code else ConnectionLost(f"{where} has no leader")

    def unreachable(self, what: str, seconds: float) -> BrokerUnreachable:
        """The error for "no broker answered": each address and what it said."""
        tried = "; ".join(f"{where}: {why}" for where, why in self._reasons(pending=True).items())
        advice = "check the address, and that a broker listens there"
        return BrokerUnreachable(f"{what}: no broker answered within {seconds:g} s ({advice}). Tried {tried}")

    def _reasons(self, *, pending: bool = False) -> dict[str, str]:
        """Per address, why it could not be used, and how often it was tried.

        Args:
            pending: behind them, addresses that were asked and have not answered yet.
        """
        reasons = {
            where: f"{why} (tried {f'{times} times' if times > 1 else 'once'})"
            for where, (why, times) in self._troubles.items()
        }
        if pending:
            known = {each.id: each for each in (*self._nodes.seeds, *self.cluster.nodes.values())}
            unanswered = [known[each] for each in self._asked if each in known]
            for node in unanswered or ([] if reasons else self._nodes.seeds):
                silent = self._client.missing or f"no answer yet{self._client.silence(node)}"
                reasons.setdefault(_address(node), silent)
        return reasons

    @property
    def waited_for(self) -> bool:
        """Somebody cannot go on without them."""
        return bool(self._connecting) or self._questions.waited_for

    def tried(self, most: int) -> str:
        """The addresses that gave none, or have not answered yet, and why; not more than ``most``."""
        said = [f"{where}: {why}" for where, why in self._reasons(pending=True).items()]
        return "; ".join(said[:most]) + (f"; and {len(said) - most} more" if len(said) > most else "")

    def explain(self, now: float) -> Iterator[str]:
        """What is waited for, in lines for people; nothing if all is well."""
        for where, why in self._reasons().items():
            yield f"metadata: {where} gave none: {why}"
        if self._troubles and -math.inf < self.all_updated_at < now:
            yield f"metadata: those in use are {now - self.all_updated_at:.1f} s old"
        for each in self._questions.waits:
            if not each.outcome.done:
                yield f"topic {each.name!r}: waiting for a broker to say where it is"

    def hold(self, name: str) -> Callable[[], None]:
        """Keep the topic's metadata fresh until what this returns is called; see `HeldTopics`."""
        # Those who look up many topics and use them one by one hold many that are old. They are asked for alone: to
        # refresh all would cost a question about all for each.
        if name not in self._topics.held and self._topics.is_old(name):
            self._client.later(self.updated_at + self._options.retry_backoff, lambda now: self._renew(name, now))
        return self._topics.hold(name)

    def _renew(self, name: str, now: float) -> None:
        """Ask for a held topic if its metadata are still old."""
        if name in self._topics.held and self._topics.is_old(name) and not self._client.closed:
            self.topic(name, now, grace=0.0)

    def forget(self, name: str) -> None:
        """The topic is not as it was known: it is asked for again when it is wanted."""
        self._topics.forget(name)

    # -- asking ------------------------------------------------------------------------------------------------------

    def refresh(self, now: float, delay: float = 0.0) -> None:
        """Ask for metadata in ``delay`` seconds at the latest, but `retry_backoff` after the last at the earliest.

        Cheap to call often.
        """
        when = max(now + delay, self.updated_at + self._options.retry_backoff)
        self._questions.want_all(when)
        self._ask_at(when)

    def suspect(self, now: float, delay: float) -> None:
        """A connection broke, or a node does not answer: the cluster may have changed."""
        if self._client.closed:
            return
        if self._troubles:  # it is asked again anyhow
            self._questions.want_all(now + delay)
        else:
            self.refresh(now, delay)

    def _ask_at(self, when: float) -> None:
        due = self._due
        if due and due.call and due.when <= when:
            return
        if due:
            due.cancel()
        self._due = self._client.later(when, self._ask)

    def _ask(self, now: float) -> None:
        self._due = None
        self._questions.forget_gone()
        earliest = self._paused_until
        if not (self._troubles or self.waited_for):
            # The caller for whom it was to be at once has gone.
            earliest = max(self._questions.all_at, self.updated_at + self._options.retry_backoff)
        if now < earliest:
            self._ask_at(earliest)
            return
        # A node that has not answered in time may be stopped: the others are asked nevertheless.
        if not any(each.hedge.call for each in self._asked.values()):
            self._ask_another(now)
        elif self._questions.wait_behind(each.question for each in self._asked.values()):
            self._ask_another(now, waits_alone=True)

    def _ask_another(self, now: float, *, waits_alone: bool = False) -> None:
        """Ask a node that has no question of this client, rather one without a failure in this round.

        Args:
            waits_alone: ask only for topics of waiting callers.
        """
        node = self._client.other_node({*self._asked, *self._gave_none}) or self._client.other_node(self._asked)
        if self._client.closed or node is None:
            return
        question = self._questions.next(now, waits_alone=waits_alone)

        def ended(answer: MetadataResponse | OttlaError, now: float) -> None:
            self._asked.pop(node.id).hedge.cancel()
            if not self._client.closed:
                self._answered(node, answer, question, now)

        hedge = self._client.later(now + HEDGE_DELAY * 2 ** len(self._asked), self._ask_another)
        self._asked[node.id] = Asked(question, hedge)
        timeout = min(self._options.request_timeout, self._options.connect_timeout)
        request = requests.metadata(question.topics, create=question.create)
        if math.isnan(self.asked_since):
            self.asked_since = now
        self._client.submit(node, Exchange(request, ended, now + timeout, background=True), now)

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
        where = _address(node)
        _, times = self._troubles.get(where, ("", 0))
        self._troubles[where] = (str(error).removeprefix(where).lstrip(": "), times + 1)
        self._gave_none.add(node.id)
        if isinstance(error, AuthenticationFailed):
            self._denied = error
        log.info("metadata could not be had", extra={"node": logged(node), "address": where, "why": str(error)})
        left = self._nodes.ids - self._gave_none
        if left - self._asked.keys():
            self._ask_at(now)
            return
        self._rounds += 1
        self._heard_since = math.inf
        self._paused_until = now + self._client.backoff(self._rounds)
        self._ask_at(self._paused_until)
        if not left:
            self._round_failed()

    def _round_failed(self) -> None:
        """No node gave metadata."""
        self._gave_none.clear()
        if self._denied:
            for outcome in self._take_connecting():
                outcome.fail(self._denied)
            for each in self._questions.waits:
                each.outcome.fail(self._denied)
            self._denied = None
        if self._findable and not self._finding:
            self._finding = True
            self._client.find()

    def _take_connecting(self) -> list[Outcome[None]]:
        connecting, self._connecting = self._connecting, []
        return connecting

    def found(self, event: Found, now: float) -> None:
        """The driver has looked for bootstrap addresses."""
        self._finding = False
        if event.addresses and not self._client.closed:
            self._nodes.replace(event.addresses)
            self._new_start()
            self._ask_at(now)

    def _new_start(self) -> None:
        """What has failed does not count any more."""
        self._gave_none.clear()
        self._rounds, self._paused_until = 0, -math.inf

    def _rebootstrap(self, node: Node, now: float) -> None:
        """The broker knows that what is known of the cluster is worthless."""
        why = "a broker asks for a new start from the bootstrap addresses"
        log.warning(why, extra={"node": logged(node)})
        self.cluster.nodes.clear()
        self._questions.want_all(now)
        self._client.give_up_all(why.replace("a broker", "the broker"), now)
        self._failed(node, RebootstrapRequired(_address(node)), now)

    def _refuse_foreign(self, node: Node, other: str | None, what: str, now: float) -> None:
        """The address leads to another cluster: nothing of what it says is about the one of this client."""
        if _address(node) not in self._troubles:
            log.error(
                "an address leads to another cluster, which has neither the records nor the offsets of the one known: "
                "its metadata are refused; check the bootstrap addresses, or restart the client if this is meant",
                extra={"address": _address(node), "cluster_known": self.cluster.cluster_id, "cluster_there": other},
            )
        self._client.give_up(node, what, now)
        self._failed(node, InconsistentClusterId(f"{_address(node)}: {what}"), now)

    def _learn(self, answer: MetadataResponse, question: Question, now: float) -> None:
        self.updated_at, self.asked_since, self._denied = now, math.nan, None
        self.learned_of, self.learned_all = question.topics, question.about_all
        if question.about_all:
            self.all_updated_at = now
        self._heard_since = min(self._heard_since, now)
        self._troubles.clear()
        self._new_start()
        self.cluster.update(answer)
        answered = {each.name for each in answer.topics}
        for name in question.topics:
            if name not in answered:
                self.cluster.drop(name)
                self.cluster.errors[name] = UnknownTopicOrPartition.code
        self._topics.learned(question.topics, now)
        waits = self._questions.waits
        self._questions.waits = [each for each in waits if not self._judge(each, question, now)]
        for observer in list(self.observers):
            observer(now)
        for outcome in self._take_connecting():
            outcome.succeed(None)
        self._client.nodes_changed(now)
        if self._due is not None:  # as of what was known until now
            self._due.cancel()
            self._due = None
        self._ask_at(
            self._questions.answered(question, now, self._options.retry_backoff, self._options.metadata_max_age)
        )

    def _judge(self, wait: TopicWait, question: Question, now: float) -> bool:
        """Settle ``wait`` if the answer to ``question`` allows it; whether it is settled."""
        name, outcome = wait.name, wait.outcome
        if outcome.done or not question.concerns(wait):
            return outcome.done
        if topic := self.cluster.topics.get(name):
            outcome.succeed(topic)
            return True
        code = self.cluster.errors.get(name, UnknownTopicOrPartition.code)
        error = broker_error(code, f"topic {name!r}", repeatable=True)
        if math.isnan(wait.unknown_since):
            wait.unknown_since = now
        unknown = isinstance(error, UnknownTopicOrPartition)
        passing = error.retriable and not (unknown and self.heard_for(wait.unknown_since, now) >= wait.grace)
        if not passing:
            outcome.fail(error)
        return not passing


def unnameable(topic: str) -> str:
    """Why no topic can have this name, which no request could hold; brokers judge all others."""
    try:
        topic.encode()
    except UnicodeEncodeError as error:
        return f"topic {topic!r:.80} cannot be encoded: {error.reason}"
    return f"topic {topic!r:.80} has {len(topic)} characters, and 249 at most" if len(topic) > MAX_TOPIC_NAME else ""


def _address(node: Node) -> str:
    return format_address(node.host, node.port)
