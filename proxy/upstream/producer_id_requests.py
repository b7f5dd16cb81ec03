"""Requests for producer ids, until upstream allocates or denies them.

Each waiting producer has its own request in flight: after a start many wait, and upstream may be far away. While
upstream denies ids, one request at a time asks whether it still does.
"""

import logging
from collections.abc import Callable

from ottla.codec.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.errors import BrokerError, ClusterAuthorizationFailed, OttlaError, broker_error
from ottla.proxy.contained import contained
from ottla.proxy.upstream.attempts import LONGEST_PAUSE, Attempts
from ottla.proxy.upstream.link import UpstreamLink

log = logging.getLogger("ottla.proxy")

_VERSION = 4
AT_ONCE = 100
"""The most requests for a producer id in flight."""
_DENIAL_LASTS = 1.0
"""Seconds for which upstream has to deny producer ids: brokers learn at different times of a right."""
_DENIAL_AGES = 10.0
"""Seconds after which a denial says nothing about the next one: more than between two requests of those who wait."""
_DENIED = (
    "upstream does not allow the proxy's own user to get producer ids: it needs IdempotentWrite on the cluster (from "
    "Kafka 3.0 on, Write on any topic is enough)"
)

Identity = tuple[int, int]
"""A producer id and its epoch."""
IdentityTold = Callable[[Identity | BrokerError, float], None]
"""Called with a producer id, or with the error if upstream denies the proxy producer ids, and the time."""


class ProducerIdRequests:
    """Requests ids for the producers that wait for one."""

    def __init__(self) -> None:
        self._attempts = Attempts(InitProducerIdRequest, _VERSION)
        self._waiting: dict[object, IdentityTold] = {}
        self._denied_since: float | None = None
        """When upstream began to deny producer ids; ``None``: it does not."""
        self._denied_at = 0.0
        """When it did so last."""
        self._told = False
        """The log says that upstream denies them."""

    def request(self, asker: object, then: IdentityTold) -> None:
        """Have upstream allocate a producer id for ``asker``."""
        self._waiting.setdefault(asker, then)

    def withdraw(self, asker: object) -> None:
        """Withdraw the request of ``asker``."""
        self._waiting.pop(asker, None)

    @property
    def in_flight(self) -> int:
        return self._attempts.in_flight

    @property
    def due(self) -> float | None:
        """When the next request may be sent; ``None`` if none is missing."""
        return self._attempts.not_before if self._missing > 0 else None

    @property
    def _missing(self) -> int:
        """How many requests can be sent now."""
        at_once = AT_ONCE if self._denied_since is None else 1
        return min(len(self._waiting), at_once) - self._attempts.in_flight

    def greeted(self, link: UpstreamLink) -> None:
        self._attempts.greeted(link)

    def lost(self) -> None:
        self._attempts.lost()

    def send(self, link: UpstreamLink, now: float, deadline: float) -> None:
        """Send the requests that are due."""
        while self._missing > 0 and now >= self._attempts.not_before:
            self._attempts.begin()
            link.ask(
                InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000),
                InitProducerIdResponse,
                self._attempts.version,
                deadline=deadline,
                answered=self._answered,
                failed=_send_again,
            )

    def _answered(self, answer: InitProducerIdResponse, now: float) -> None:
        self._attempts.answered()
        if answer.error_code == ClusterAuthorizationFailed.code:
            self._deny(now)
            return
        if answer.error_code:
            if now >= self._attempts.not_before:  # otherwise another answer has said so
                log.warning("producer id not allocated yet, retrying: %s", broker_error(answer.error_code))
            self._attempts.pause(now)
            return
        if self._told:
            log.warning("upstream allocates producer ids again")
        self._denied_since, self._told = None, False
        if self._waiting:  # the request may have been withdrawn meanwhile
            then = self._waiting.pop(next(iter(self._waiting)))
            with contained("a producer id arrives"):
                then((answer.producer_id, answer.producer_epoch), now)

    def _deny(self, now: float) -> None:
        """Tell all who wait that upstream denies producer ids, if it has done so for a while."""
        self._attempts.pause(now, LONGEST_PAUSE)
        if self._denied_since is None or now > self._denied_at + _DENIAL_AGES:
            self._denied_since = now
        self._denied_at = now
        if now < self._denied_since + _DENIAL_LASTS:
            return
        if not self._told:
            self._told = True
            log.error("upstream denies producer ids, records of clients without one are refused: %s", _DENIED)
        waiting, self._waiting = self._waiting, {}
        for then in waiting.values():
            with contained("a producer id is denied"):
                then(ClusterAuthorizationFailed(_DENIED), now)


def _send_again(error: OttlaError, now: float) -> None:
    """Do nothing: after the loss of the link, `ProducerIdRequests.send` sends the request again."""
