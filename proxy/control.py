"""The proxy's own questions to upstream: who is there, who leads what, and producer ids.

One connection, to whichever node answers: the known nodes and the bootstrap addresses are tried in turn. Questions
are asked until they are answered.
"""

from collections.abc import Callable
from itertools import count

from ottla.codec.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.codec.apis.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.errors import BrokerUnreachable, OttlaError, broker_error
from ottla.proxy.cluster import Cluster
from ottla.proxy.events import Address
from ottla.proxy.link import Link, Links

_METADATA_VERSION, _PRODUCER_ID_VERSION = 12, 4
AGAIN = 0.1
"""Seconds between two tries of a question, and between two looks at the same metadata."""
TOPICS_AT_ONCE = 500

Identity = tuple[int, int]
"""A producer id and its epoch."""


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
        self.complaints: dict[Address, str] = {}
        """Address -> what was wrong with it when it was tried last."""
        self._links, self._cluster, self._bootstrap = links, cluster, bootstrap
        self._request_timeout, self._learned = request_timeout, learned
        self._link: Link | None = None
        self._turn = count()
        self._topics: dict[str, None] = {}
        self._nodes_wanted = True
        self._identity_for: list[Callable[[Identity, float], None]] = []
        self._under_way = 0
        self._not_before = 0.0
        self._metadata_version = self._producer_id_version = 0

    def want_topics(self, *names: str) -> None:
        """Have the metadata of topics looked up soon."""
        self._topics |= dict.fromkeys(names)

    def want_nodes(self) -> None:
        """Have the nodes looked up soon."""
        self._nodes_wanted = True

    def want_identity(self, then: Callable[[Identity, float], None]) -> None:
        """Have upstream hand out a producer id."""
        self._identity_for.append(then)

    @property
    def deadline(self) -> float | None:
        return self._not_before if self._wanted and not self._under_way else None

    @property
    def _wanted(self) -> bool:
        return bool(self._nodes_wanted or self._topics or self._identity_for)

    def pump(self, now: float) -> None:
        """Ask what there is to ask."""
        if not self._wanted or self._under_way or now < self._not_before:
            return
        if self._link is None:
            addresses = [*dict.fromkeys((*self._cluster.nodes.values(), *self._bootstrap))]
            address = addresses[next(self._turn) % len(addresses)]
            self._link = self._links.connect(address, now, ready=self._greeted, lost=self._lost)
        elif self._link.ready:
            self._ask(self._link, now)

    def _greeted(self, now: float) -> None:
        assert self._link is not None, "a link that is ready was made"
        self._metadata_version = self._link.version(MetadataRequest, _METADATA_VERSION)
        self._producer_id_version = self._link.version(InitProducerIdRequest, _PRODUCER_ID_VERSION)

    def _ask(self, link: Link, now: float) -> None:
        self._not_before = now + AGAIN
        if self._nodes_wanted or self._topics:
            names = list(self._topics)[:TOPICS_AT_ONCE]
            for name in names:
                del self._topics[name]
            self._nodes_wanted = False
            self._under_way += 1
            link.ask(
                MetadataRequest(
                    topics=tuple(MetadataRequestTopic(name=name) for name in names), allow_auto_topic_creation=False
                ),
                MetadataResponse,
                self._metadata_version,
                deadline=now + self._request_timeout,
                answered=self._described,
                failed=lambda error, now: self._ask_again(names),
            )
        if self._identity_for:
            self._under_way += 1
            link.ask(
                InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000),
                InitProducerIdResponse,
                self._producer_id_version,
                deadline=now + self._request_timeout,
                answered=self._identified,
                failed=lambda error, now: self._ask_again([]),
            )

    def _described(self, answer: MetadataResponse, now: float) -> None:
        self._under_way -= 1
        self.answered = True
        self.complaints.clear()
        self._cluster.learn(answer, now)
        self._learned(answer, now)

    def _identified(self, answer: InitProducerIdResponse, now: float) -> None:
        self._under_way -= 1
        if answer.error_code:
            self._note(str(broker_error(answer.error_code, "producer id")))
            return
        waiting, self._identity_for = self._identity_for, []
        for then in waiting:
            then((answer.producer_id, answer.producer_epoch), now)

    def _ask_again(self, names: list[str]) -> None:
        self._under_way -= 1
        self._topics |= dict.fromkeys(names)
        self._nodes_wanted = True

    def _lost(self, error: OttlaError, now: float) -> None:
        self._note(str(error))
        self._link = None
        self.answered = False
        self._nodes_wanted = True
        self._not_before = now + AGAIN

    def _note(self, complaint: str) -> None:
        if self._link is not None:
            self.complaints[self._link.address] = complaint

    def unreachable(self, timeout: float) -> BrokerUnreachable:
        """The error for an upstream that did not answer in ``timeout`` seconds: what was tried, and what it said."""
        tried = dict.fromkeys(self._bootstrap, "no answer") | self.complaints
        said = "; ".join(f"{host}:{port}: {why}" for (host, port), why in tried.items())
        return BrokerUnreachable(f"upstream did not answer within {timeout:g} s: {said}")
