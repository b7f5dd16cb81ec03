"""The proxy's own questions to upstream: who is there, who leads what, and producer ids.

One connection, to whichever node answers: the known nodes and the bootstrap addresses are tried in turn. Questions
are asked until they are answered.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

from ottla.addresses import format_address
from ottla.codec.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.codec.apis.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.errors import (
    AuthenticationFailed,
    BrokerUnreachable,
    ConfigurationError,
    InconsistentClusterId,
    OttlaError,
    broker_error,
)
from ottla.proxy.contained import as_ottla_error
from ottla.proxy.events import Address
from ottla.proxy.upstream.cluster import Cluster
from ottla.proxy.upstream.link import Link, Links

log = logging.getLogger("ottla.proxy")

_METADATA_VERSION, _PRODUCER_ID_VERSION = 12, 4
AGAIN = 0.1
"""Seconds between two tries of a question, and between two looks at the same metadata."""
LONGEST_BACKOFF = 1.0
TOPICS_AT_ONCE = 500
PATIENCE = 5.0
"""Seconds after which another node is asked: what is asked here takes none of them long."""
LOOK = 5.0
"""Seconds without a question after which it is looked whether upstream still answers."""

Identity = tuple[int, int]
"""A producer id and its epoch."""


@dataclass(slots=True)
class _Question:
    """When a question may be asked again."""

    version: int = 0
    under_way: bool = False
    not_before: float = 0.0

    def begin(self, now: float) -> None:
        self.under_way, self.not_before = True, now + AGAIN

    def may_be_asked(self, now: float) -> bool:
        return not self.under_way and now >= self.not_before


class Control:
    """Asks upstream until it answers.

    Args:
        bootstrap: where upstream is looked for when none of its known nodes answers.
        learned: called after each answer to Metadata, which `Cluster` has taken over then.
    """

    def __init__(
        self,
        links: Links,
        cluster: Cluster,
        bootstrap: tuple[Address, ...],
        request_timeout: float,
        learned: Callable[[MetadataResponse, float], None],
    ) -> None:
        self.answered = False
        """Upstream answered the last time it was asked."""
        self._silent = False
        """It has answered, and does not now; the log says so."""
        self._refusals: dict[Address, AuthenticationFailed | ConfigurationError] = {}
        """Address -> why it and the proxy do not trust each other, or that it is of another cluster."""
        self._complaints: dict[Address, str] = {}
        """Address -> what was wrong with it when it was tried last."""
        self._links, self._cluster, self._bootstrap = links, cluster, bootstrap
        self._request_timeout, self._learned = request_timeout, learned
        self._link: Link | None = None
        self._turn = count()
        self._look_at = 0.0
        """When to see whether upstream still answers."""
        self._connect_not_before = 0.0
        self._failures = 0
        self._metadata, self._identity = _Question(), _Question()
        self._topics: dict[str, None] = {}
        self._nodes_requested = True
        self._identity_for: dict[object, Callable[[Identity, float], None]] = {}

    def request_topics(self, *names: str) -> None:
        """Have the metadata of topics looked up soon."""
        self._topics |= dict.fromkeys(names)

    def request_nodes(self) -> None:
        """Have the nodes looked up soon."""
        self._nodes_requested = True

    def request_identity(self, asker: object, then: Callable[[Identity, float], None]) -> None:
        """Have upstream allocate a producer id, for ``asker`` alone."""
        self._identity_for.setdefault(asker, then)

    def withdraw_identity(self, asker: object) -> None:
        """It is not needed any more."""
        self._identity_for.pop(asker, None)

    @property
    def deadline(self) -> float | None:
        if self._link is None:
            return self._connect_not_before
        due = [question.not_before for question in self._questions() if not question.under_way]
        return min([*due, self._look_at]) if self._link.ready else None

    def _questions(self) -> list[_Question]:
        """What there is to ask."""
        wanted = [self._metadata] if self._nodes_requested or self._topics else []
        return [*wanted, self._identity] if self._identity_for else wanted

    def pump(self, now: float) -> None:
        """Ask what there is to ask."""
        if self._link is None or not self._link.open:
            if now >= self._connect_not_before:
                addresses = [*dict.fromkeys((*self._cluster.nodes.values(), *self._bootstrap))]
                address = addresses[next(self._turn) % len(addresses)]
                self._link = self._links.connect(address, now, ready=self._greeted, lost=self._lost)
        elif self._link.ready:
            try:
                self._ask(self._link, now)
            except Exception as bug:
                log.exception("a bug in the proxy, please report it: a question to upstream")
                self._link.end(as_ottla_error(bug), now)

    def _ask(self, link: Link, now: float) -> None:
        if now >= self._look_at:
            self._look_at = now + LOOK
            self._nodes_requested = True
        for question in self._questions():
            if question.may_be_asked(now):
                question.begin(now)
                ask = self._ask_metadata if question is self._metadata else self._ask_identity
                ask(link, now + min(self._request_timeout, PATIENCE))

    def _greeted(self, now: float) -> None:
        assert self._link is not None, "a link that is ready was made"
        self._metadata.version = self._link.version(MetadataRequest, _METADATA_VERSION)
        self._identity.version = self._link.version(InitProducerIdRequest, _PRODUCER_ID_VERSION)

    def _ask_metadata(self, link: Link, deadline: float) -> None:
        names = list(self._topics)[:TOPICS_AT_ONCE]
        for name in names:
            del self._topics[name]
        self._nodes_requested = False
        link.ask(
            MetadataRequest(
                topics=tuple(MetadataRequestTopic(name=name) for name in names), allow_auto_topic_creation=False
            ),
            MetadataResponse,
            self._metadata.version,
            deadline=deadline,
            answered=self._described,
            failed=lambda error, now: self.request_topics(*names),
        )

    def _ask_identity(self, link: Link, deadline: float) -> None:
        link.ask(
            InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000),
            InitProducerIdResponse,
            self._identity.version,
            deadline=deadline,
            answered=self._identified,
            failed=_ask_again,
        )

    def _described(self, answer: MetadataResponse, now: float) -> None:
        self._metadata.under_way = False
        self.answered = True
        self._failures = 0
        if self._silent:
            self._silent = False
            log.warning("upstream answers again")
        self._complaints.clear()
        self._refusals.clear()
        self._cluster.learn(answer, now, newest=True)
        self._nodes_requested = not self._cluster.nodes  # a node that has just started may know nobody
        self._learned(answer, now)

    def _identified(self, answer: InitProducerIdResponse, now: float) -> None:
        self._identity.under_way = False
        if answer.error_code:
            log.warning("no producer id for the proxy yet: %s", broker_error(answer.error_code))
            return
        self._identity.not_before = now
        if self._identity_for:  # it may have been withdrawn meanwhile
            then = self._identity_for.pop(next(iter(self._identity_for)))
            then((answer.producer_id, answer.producer_epoch), now)

    def _lost(self, error: OttlaError, now: float) -> None:
        assert self._link is not None, "a link that is lost was made"
        idle = self._link.ready and not (self._metadata.under_way or self._identity.under_way)
        if idle:  # as brokers do with a connection that carries nothing; whether upstream answers is to be seen
            self._link = None
            self._connect_not_before = now + AGAIN
            self._nodes_requested = True
            return
        said = str(error)
        self._complaints[self._link.address] = said if said.startswith(str(self._link)) else f"{self._link}: {said}"
        if isinstance(error, AuthenticationFailed):
            if not self._refusals:
                log.error("the proxy and upstream do not trust each other: %s", error)
            self._refusals[self._link.address] = error
        elif isinstance(error, InconsistentClusterId):
            what = f"{error.detail}: start another proxy for that, with a state directory of its own"
            if not self._refusals:
                log.error("an address of upstream is of another cluster, and no records go there: %s", what)
            self._refusals[self._link.address] = ConfigurationError(what)
        self._link = None
        self._connect_not_before = now + min(AGAIN * 2**self._failures, LONGEST_BACKOFF)
        self._failures = min(self._failures + 1, 10)
        if self.answered:
            self._silent = True
            log.warning("upstream does not answer: %s", error)
        self._metadata.under_way = self._identity.under_way = False
        self.answered = False
        self._nodes_requested = True

    @property
    def refused(self) -> AuthenticationFailed | ConfigurationError | None:
        """Why no address of upstream can be used, one alone may be wrong: it and the proxy do not trust each other, or
        it is of another cluster than the proxy's records.
        """
        return self._refusals[self._bootstrap[0]] if self._refusals.keys() >= {*self._bootstrap} else None

    def unreachable(self, timeout: float) -> BrokerUnreachable:
        """The error for an upstream that did not answer in ``timeout`` seconds: what was tried, and what it said."""
        missing = self._links.credentials.missing
        silent = {each: f"upstream {format_address(*each)}: {missing or 'no answer'}" for each in self._bootstrap}
        if (link := self._link) is not None and link.silence and link.address in silent:
            silent[link.address] += link.silence
        return BrokerUnreachable(f"no answer within {timeout:g} s: {'; '.join((silent | self._complaints).values())}")


def _ask_again(error: OttlaError, now: float) -> None:
    """`Control._lost` sees to it."""
