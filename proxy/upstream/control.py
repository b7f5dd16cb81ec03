"""Sends the proxy's own requests to upstream: Metadata, DescribeConfigs and InitProducerId.

It uses one connection, to any broker that answers: it tries the known brokers, and then the bootstrap addresses.
Requests are repeated until they are answered.
"""

import logging
from collections.abc import Callable, Hashable
from itertools import count

from ottla.addresses import format_address
from ottla.codec.apis.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.errors import (
    AuthenticationFailed,
    BrokerUnreachable,
    ConfigurationError,
    InconsistentClusterId,
    OttlaError,
)
from ottla.proxy.contained import as_ottla_error, contained
from ottla.proxy.events import Address
from ottla.proxy.upstream.attempts import AGAIN, LONGEST_PAUSE, Attempts
from ottla.proxy.upstream.cluster import UpstreamCluster
from ottla.proxy.upstream.link import UpstreamLink, UpstreamLinks
from ottla.proxy.upstream.producer_id_requests import ProducerIdRequests
from ottla.proxy.upstream.topic_config_requests import TopicConfigRequests
from ottla.proxy.upstream.wanted_topics import OWN, WantedTopics

log = logging.getLogger("ottla.proxy")

_METADATA_VERSION = 12
TOPICS_AT_ONCE = 500
_MOST_AWAITED = 1000
"""The most names of a client in the queue that it waits for."""
_MOST_HINTS = 50
"""The most names of a client in the queue of those for which nobody waits: some 15 KB."""
PATIENCE = 5.0
"""Seconds after which the request goes to another broker: these requests take a broker little time."""
LOOK = 5.0
"""Seconds without a request after which the proxy asks for the brokers, to see whether upstream still answers."""

_MOST_REASONS = 3
"""The most addresses that `Control.why_silent` names."""


class Control:
    """Sends requests to upstream until it answers.

    Args:
        bootstrap: addresses that are tried beside the known brokers.
        learned: called with each Metadata response, after `UpstreamCluster` has taken it over.

    Attributes:
        producer_ids, configs: the requests of these kinds.
    """

    def __init__(
        self,
        links: UpstreamLinks,
        cluster: UpstreamCluster,
        bootstrap: tuple[Address, ...],
        request_timeout: float,
        learned: Callable[[MetadataResponse, float], None],
    ) -> None:
        self.answered = False
        """Upstream answered the last request."""
        self.producer_ids = ProducerIdRequests()
        self.configs = TopicConfigRequests()
        self._others = (self.configs, self.producer_ids)
        self._has_answered = False
        """Upstream has answered before; if not, the start of the proxy fails with the error, and prints it."""
        self._silent = False
        """Upstream has stopped answering, and the log says so."""
        self._refusals: dict[Address, AuthenticationFailed | ConfigurationError] = {}
        """Address -> why authentication failed there, or that it belongs to another cluster."""
        self._complaints: dict[Address, str] = {}
        """Address -> why the last attempt failed there."""
        self._links, self._cluster, self._bootstrap = links, cluster, bootstrap
        self._request_timeout, self._learned = request_timeout, learned
        self._link: UpstreamLink | None = None
        self._turn = count()
        self._attempts = 0
        """Connections since upstream last answered."""
        self._look_at = 0.0
        """When to check whether upstream still answers."""
        self._connect_not_before = 0.0
        self._failures = 0
        self._metadata = Attempts(MetadataRequest, _METADATA_VERSION)
        self._topics = WantedTopics(_MOST_AWAITED)
        self._hints = WantedTopics(_MOST_HINTS)
        self._nodes_requested = True
        self._waiting: dict[object, Callable[[float], None]] = {}
        """Calls that wait until upstream answers, by the waiting object."""

    def request_topics(self, *names: str, asker: Hashable = OWN) -> None:
        """Request the metadata of topics soon; ``asker``: who waits for it."""
        self._topics.add(names, asker)

    def hint_topics(self, *names: str, asker: Hashable) -> None:
        """Request the metadata of topics for which nobody waits, after all others."""
        self._hints.add(names, asker)

    def request_nodes(self) -> None:
        """Request the list of brokers soon."""
        self._nodes_requested = True

    @property
    def unavailable(self) -> bool:
        """No broker answers at the moment; a broker that refuses the proxy does answer."""
        return not self._refusals and not (self.answered and self._link is not None and self._link.ready)

    def when_answered(self, waiting: object, then: Callable[[float], None]) -> None:
        """Call ``then`` once a broker answers again."""
        self._waiting[waiting] = then
        self._nodes_requested = True

    def withdraw(self, waiting: object) -> None:
        """Withdraw the call that waits for an answer, if there is one."""
        self._waiting.pop(waiting, None)

    @property
    def deadline(self) -> float | None:
        if self._link is None:
            return self._connect_not_before
        if not self._link.ready:
            return None
        due = [self._look_at, *(each.due for each in self._others)]
        if self._wants_metadata:
            due.append(self._metadata.not_before)
        return min(each for each in due if each is not None)

    @property
    def _wants_metadata(self) -> bool:
        return not self._metadata.in_flight and bool(self._nodes_requested or self._topics or self._hints)

    def pump(self, now: float) -> None:
        """Connect if there is no connection, and send the requests that are due."""
        if self._link is None or not self._link.open:
            if now >= self._connect_not_before:
                self._link = self._links.connect(self._next_address(), now, ready=self._greeted, lost=self._lost)
        elif self._link.ready:
            try:
                self._ask(self._link, now)
            except Exception as bug:
                log.exception("a bug in the proxy, please report it: a question to upstream")
                self._link.end(as_ottla_error(bug), now)

    def _next_address(self) -> Address:
        """The brokers that upstream names, in turn; once all of them are silent, also the other bootstrap addresses.

        Those may belong to brokers that are gone, and connecting to one may take as long as the timeout.
        """
        named = [*dict.fromkeys(self._cluster.nodes.values())]
        others = [each for each in self._bootstrap if each not in named]
        attempt = self._attempts % (len(named) + len(others))
        self._attempts += 1
        return named[next(self._turn) % len(named)] if attempt < len(named) else others[attempt - len(named)]

    def _ask(self, link: UpstreamLink, now: float) -> None:
        if now >= self._look_at:
            self._look_at = now + LOOK
            self._nodes_requested = True
        deadline = now + min(self._request_timeout, PATIENCE)
        if self._wants_metadata and now >= self._metadata.not_before:
            self._metadata.begin()
            self._metadata.pause(now)
            self._ask_metadata(link, deadline)
        for each in self._others:
            each.send(link, now, deadline)

    def _greeted(self, now: float) -> None:
        assert self._link is not None, "only an open link becomes ready"
        for each in (self._metadata, *self._others):
            each.greeted(self._link)

    def _ask_metadata(self, link: UpstreamLink, deadline: float) -> None:
        names = self._topics.take(TOPICS_AT_ONCE)
        names += self._hints.take(TOPICS_AT_ONCE - len(names))
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

    def _described(self, answer: MetadataResponse, now: float) -> None:
        self._metadata.answered()
        self.answered = self._has_answered = True
        self._failures = self._attempts = 0
        if self._silent:
            self._silent = False
            log.warning("upstream answers again")
        self._complaints.clear()
        self._refusals.clear()
        self._cluster.learn(answer, now, newest=True)
        self._nodes_requested = not self._cluster.nodes  # a broker that has just started may list no brokers
        self._learned(answer, now)
        waiting, self._waiting = self._waiting, {}
        for then in waiting.values():
            with contained("upstream answers"):
                then(now)

    def _lost(self, error: OttlaError, now: float) -> None:
        assert self._link is not None, "only an open link is lost"
        idle = self._link.ready and not any(each.in_flight for each in (self._metadata, *self._others))
        if idle:  # brokers close idle connections (connections.max.idle.ms), so this is no sign of an outage
            self._link = None
            self._connect_not_before = now + AGAIN
            self._nodes_requested = True
            return
        said = str(error)
        self._complaints[self._link.address] = said if said.startswith(str(self._link)) else f"{self._link}: {said}"
        if isinstance(error, AuthenticationFailed):
            if not self._refusals and self._has_answered:
                log.error("authentication with upstream failed: %s", error)
            self._refusals[self._link.address] = error
        elif isinstance(error, InconsistentClusterId):
            what = f"{error.detail}: use another --state"
            if not self._refusals and self._has_answered:
                log.error("address belongs to another cluster, no records are sent to it: %s", what)
            self._refusals[self._link.address] = ConfigurationError(what)
        self._link = None
        self._connect_not_before = now + min(AGAIN * 2**self._failures, LONGEST_PAUSE)
        self._failures = min(self._failures + 1, 10)
        if self.answered:
            self._silent = True
            log.warning("upstream does not answer: %s", error)
        for each in (self._metadata, *self._others):
            each.lost()
        self.answered = False
        self._nodes_requested = True

    @property
    def refused(self) -> AuthenticationFailed | ConfigurationError | None:
        """Why upstream refuses the proxy, if every bootstrap address does; ``None`` if only some do.

        Either authentication fails, or the address belongs to another cluster than the proxy's records.
        """
        return self._refusals[self._bootstrap[0]] if self._refusals.keys() >= {*self._bootstrap} else None

    @property
    def why_silent(self) -> str | None:
        """Why upstream does not answer; ``None`` while it does, or if no attempt has failed yet."""
        if not self.unavailable and not self._refusals:
            return None
        return "; ".join([*self._complaints.values()][:_MOST_REASONS]) or None

    def unreachable(self, timeout: float) -> BrokerUnreachable:
        """The error if upstream did not answer in ``timeout`` seconds: each address, and why it failed."""
        missing = self._links.credentials.missing
        silent = {each: f"upstream {format_address(*each)}: {missing or 'no answer'}" for each in self._bootstrap}
        if (link := self._link) is not None and link.usual_cause and link.address in silent:
            silent[link.address] += link.usual_cause
        return BrokerUnreachable(f"no answer within {timeout:g} s: {'; '.join((silent | self._complaints).values())}")
