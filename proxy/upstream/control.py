"""Sends the proxy's own requests to upstream: Metadata, DescribeConfigs and InitProducerId.

It uses one connection, to any broker that answers: it tries the known brokers, and then the bootstrap addresses.
Requests are repeated until they are answered. Each waiting producer has its own request for an id in flight: after a
start many wait, and upstream may be far away.
"""

import logging
from collections.abc import Callable, Hashable, Iterator, Mapping
from itertools import count

from ottla.addresses import format_address
from ottla.codec.apis.describe_configs import (
    TOPIC,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from ottla.codec.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.codec.apis.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.errors import (
    AuthenticationFailed,
    BrokerError,
    BrokerUnreachable,
    ClusterAuthorizationFailed,
    ConfigurationError,
    InconsistentClusterId,
    OttlaError,
    RemoteProtocolError,
    broker_error,
)
from ottla.proxy.contained import as_ottla_error, contained
from ottla.proxy.events import Address
from ottla.proxy.upstream.cluster import UpstreamCluster
from ottla.proxy.upstream.link import UpstreamLink, UpstreamLinks
from ottla.proxy.upstream.wanted_topics import OWN, WantedTopics

log = logging.getLogger("ottla.proxy")

_METADATA_VERSION, _PRODUCER_ID_VERSION, _CONFIGS_VERSION = 12, 4, 4
AGAIN = 0.1
"""Seconds between two attempts of a request."""
LONGEST_BACKOFF = 1.0
TOPICS_AT_ONCE = 500
_MOST_AWAITED = 1000
"""The most names of a client in the queue that it waits for."""
_MOST_HINTS = 50
"""The most names of a client in the queue of those for which nobody waits: some 15 KB."""
PATIENCE = 5.0
"""Seconds after which the request goes to another broker: these requests take a broker little time."""
CONFIG_KEYS = (
    CLEANUP := "cleanup.policy",
    AFTER := "message.timestamp.after.max.ms",
    BEFORE := "message.timestamp.before.max.ms",
    DIFFERENCE := "message.timestamp.difference.max.ms",
    TYPE := "message.timestamp.type",
    LARGEST := "max.message.bytes",
)
"""The configuration of a topic by which brokers judge records."""
IDS_AT_ONCE = 100
"""The most requests for a producer id in flight."""
LOOK = 5.0
"""Seconds without a request after which the proxy asks for the brokers, to see whether upstream still answers."""

_MOST_REASONS = 3
"""The most addresses that `Control.why_silent` names."""
_DENIAL_LASTS = 1.0
"""Seconds for which upstream has to deny producer ids: brokers learn at different times of a right."""
_DENIED = (
    "upstream does not allow the proxy's own user to get producer ids: it needs IdempotentWrite on the cluster (from "
    "Kafka 3.0 on, Write on any topic is enough)"
)

ConfigTold = Callable[[Mapping[str, str | None] | None, str, float], None]
"""Called with a topic's configuration, or with ``None`` and the reason if upstream does not tell it, and the time."""
Identity = tuple[int, int]
"""A producer id and its epoch."""
IdentityTold = Callable[[Identity | BrokerError, float], None]
"""Called with a producer id, or with the error if upstream denies the proxy producer ids, and the time."""


class _RequestBackoff:
    """Tracks when a kind of request may be sent again, and its version on the current link.

    Args:
        newest: the newest version that the proxy uses.

    Attributes:
        in_flight: how many of these requests are in flight.
    """

    def __init__(self, kind: type, newest: int) -> None:
        self._kind, self._newest = kind, newest
        self.version = 0
        self.in_flight = 0
        self.not_before = 0.0

    def greeted(self, link: UpstreamLink) -> None:
        """Agree on the version with a new link.

        Raises:
            RemoteProtocolError: there is no common version.
        """
        self.version = link.version(self._kind, self._newest)

    def begin(self) -> None:
        self.in_flight += 1

    def answered(self) -> None:
        self.in_flight -= 1

    def pause(self, now: float, seconds: float = AGAIN) -> None:
        """Wait before the next request: the next one would ask for the same."""
        self.not_before = now + seconds

    def lost(self) -> None:
        """Take note that no request will be answered any more."""
        self.in_flight = 0


class Control:
    """Requests metadata and producer ids from upstream until it answers.

    Args:
        bootstrap: addresses that are tried beside the known brokers.
        learned: called with each Metadata response, after `UpstreamCluster` has taken it over.
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
        self._metadata = _RequestBackoff(MetadataRequest, _METADATA_VERSION)
        self._identity = _RequestBackoff(InitProducerIdRequest, _PRODUCER_ID_VERSION)
        self._topics = WantedTopics(_MOST_AWAITED)
        self._hints = WantedTopics(_MOST_HINTS)
        self._nodes_requested = True
        self._identity_for: dict[object, IdentityTold] = {}
        self._identity_denied: float | None = None
        """Since when upstream denies the proxy producer ids; ``None``: it does not."""
        self._told_of_denial = False
        """The log says so."""
        self._config_for: dict[str, ConfigTold] = {}
        """Topic -> the last call that waits for its configuration. Earlier ones, of a replaced topic, are dropped."""
        self._configs: dict[str, None] = {}
        """Topics whose request is not sent yet."""
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

    def request_config(self, topic: str, told: ConfigTold) -> None:
        """Request the configuration of a topic."""
        self._config_for[topic], self._configs[topic] = told, None

    def request_identity(self, asker: object, then: IdentityTold) -> None:
        """Have upstream allocate a producer id for ``asker``."""
        self._identity_for.setdefault(asker, then)

    def withdraw_identity(self, asker: object) -> None:
        """Withdraw the request of ``asker`` for a producer id."""
        self._identity_for.pop(asker, None)

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
        due = [self._look_at]
        if self._configs:
            due.append(0.0)
        if self._wants_metadata:
            due.append(self._metadata.not_before)
        if self._missing_ids > 0:
            due.append(self._identity.not_before)
        return min(due)

    @property
    def _wants_metadata(self) -> bool:
        return not self._metadata.in_flight and bool(self._nodes_requested or self._topics or self._hints)

    @property
    def _missing_ids(self) -> int:
        """How many requests for a producer id can be sent now."""
        at_once = IDS_AT_ONCE if self._identity_denied is None else 1
        return min(len(self._identity_for), at_once) - self._identity.in_flight

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
        if self._configs:
            self._ask_configs(link, now, deadline)
        while self._missing_ids > 0 and now >= self._identity.not_before:
            self._identity.begin()
            self._ask_identity(link, deadline)

    def _greeted(self, now: float) -> None:
        assert self._link is not None, "only an open link becomes ready"
        self._metadata.greeted(self._link)
        self._identity.greeted(self._link)

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

    def _ask_configs(self, link: UpstreamLink, now: float, deadline: float) -> None:
        asked = {topic: self._config_for[topic] for topic in self._configs}
        self._configs = {}

        def last() -> Iterator[tuple[str, ConfigTold]]:
            return ((topic, told) for topic, told in asked.items() if self._config_for.get(topic) is told)

        def answered(answer: DescribeConfigsResponse, now: float) -> None:
            results = {each.resource_name: each for each in answer.results}
            for topic, told in last():
                del self._config_for[topic]
                with contained("a configuration arrives"):
                    if (found := results.get(topic)) is None or found.error_code:
                        told(None, "no answer" if found is None else broker_error(found.error_code).name, now)
                    else:
                        told({each.name: each.value for each in found.configs}, "", now)

        try:
            version = link.version(DescribeConfigsRequest, _CONFIGS_VERSION)
        except RemoteProtocolError:
            for topic, told in last():
                del self._config_for[topic]
                with contained("no configuration arrives"):
                    told(None, "upstream does not serve DescribeConfigs", now)
            return

        link.ask(
            DescribeConfigsRequest(
                resources=tuple(
                    DescribeConfigsResource(resource_type=TOPIC, resource_name=name, configuration_keys=CONFIG_KEYS)
                    for name in asked
                )
            ),
            DescribeConfigsResponse,
            version,
            deadline=deadline,
            answered=answered,
            failed=lambda error, now: self._configs.update((topic, None) for topic, _ in last()),
        )

    def _ask_identity(self, link: UpstreamLink, deadline: float) -> None:
        link.ask(
            InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000),
            InitProducerIdResponse,
            self._identity.version,
            deadline=deadline,
            answered=self._identified,
            failed=_ask_again,
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
            then(now)

    def _identified(self, answer: InitProducerIdResponse, now: float) -> None:
        self._identity.answered()
        if answer.error_code == ClusterAuthorizationFailed.code:
            self._deny_identities(now)
            return
        if answer.error_code:
            if now >= self._identity.not_before:  # otherwise another answer has said so
                log.warning("producer id not allocated yet, retrying: %s", broker_error(answer.error_code))
            self._identity.pause(now)
            return
        if self._told_of_denial:
            log.warning("upstream allocates producer ids again")
        self._identity_denied, self._told_of_denial = None, False
        if self._identity_for:  # the request may have been withdrawn meanwhile
            then = self._identity_for.pop(next(iter(self._identity_for)))
            then((answer.producer_id, answer.producer_epoch), now)

    def _deny_identities(self, now: float) -> None:
        """Tell all who wait for a producer id that upstream denies them, if it has done so for a while."""
        self._identity.pause(now, LONGEST_BACKOFF)
        if self._identity_denied is None:
            self._identity_denied = now
        if now < self._identity_denied + _DENIAL_LASTS:
            return
        if not self._told_of_denial:
            self._told_of_denial = True
            log.error("upstream denies producer ids, records of clients without one are refused: %s", _DENIED)
        waiting, self._identity_for = self._identity_for, {}
        for then in waiting.values():
            with contained("a producer id is denied"):
                then(ClusterAuthorizationFailed(_DENIED), now)

    def _lost(self, error: OttlaError, now: float) -> None:
        assert self._link is not None, "only an open link is lost"
        idle = self._link.ready and not (self._metadata.in_flight or self._identity.in_flight)
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
        self._connect_not_before = now + min(AGAIN * 2**self._failures, LONGEST_BACKOFF)
        self._failures = min(self._failures + 1, 10)
        if self.answered:
            self._silent = True
            log.warning("upstream does not answer: %s", error)
        self._metadata.lost()
        self._identity.lost()
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


def _ask_again(error: OttlaError, now: float) -> None:
    """Do nothing: `Control._lost` has the request sent again."""
