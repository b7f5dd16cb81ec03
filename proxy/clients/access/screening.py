"""The input and the output of a screen.

A screen is a pure function: it gets a request, and returns what to do with it. It knows the name of each topic id in
the request, unless upstream does not know the id either.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from ottla.acl.access import denial
from ottla.acl.acls import CLUSTER_NAME
from ottla.acl.rights import WRITE_TRANSACTIONAL_ID, Right
from ottla.client_info import ClientInfo
from ottla.codec.wire import NO_UUID
from ottla.errors import BrokerError, InvalidProducerIdMapping, UnknownTopicId
from ottla.proxy.clients.access.owners import ProducerOwners

if TYPE_CHECKING:
    from uuid import UUID

    from ottla.acl.access import Access

T = TypeVar("T")

Change = Callable[[Any], Any]
"""Changes a response of upstream."""


class Verdict(NamedTuple):
    """What to do with a request.

    Attributes:
        answer: the response; upstream does not get the request.
        request: goes to upstream instead of the client's own request.
        change: changes upstream's response for the client.
        closes: why the client's connection is closed instead of all this.
    """

    answer: Any = None
    request: Any = None
    change: Change | None = None
    closes: str = ""


PASS = Verdict()
"""The request passes as it is, and so does the response."""


class Asked(NamedTuple):
    """A request of a client.

    Attributes:
        names: the names of the topic ids in it, as far as upstream knows them.
        owners: of the producer ids in it.
        abort: the error code with which this client aborts its transaction, and requests a new epoch.
    """

    message: Any
    version: int
    client: ClientInfo
    access: "Access"
    names: "Mapping[UUID, str]"
    owners: ProducerOwners
    abort: int

    def refusal(self, right: Right, name: str = CLUSTER_NAME) -> int:
        """The error code if the client does not have a right that its request needs, otherwise 0."""
        return 0 if self.access.allows(self.client, right, name) else right.denied.code

    def refuses(self, right: Right, name: str = CLUSTER_NAME) -> BrokerError | None:
        """The same as an error, with a text."""
        return self.access.refusal(self.client, right, name)

    def denial(self, right: Right, name: str = CLUSTER_NAME, *, code: int) -> str | None:
        """The text to an error code of `refusal`; ``None`` if the code has another reason."""
        return denial(self.client, right, name) if code == right.denied.code else None

    def shows(self, right: Right, name: str = CLUSTER_NAME) -> bool:
        """Whether the client has a right on a resource that it did not name."""
        return self.access.shows(self.client, right, name)

    def refusal_of_producer(self, transactional_id: str, producer_id: int, unknown: int) -> int:
        """The error code if a transaction of this id may not have records or offsets of a producer id, otherwise 0.

        Args:
            unknown: the code if the proxy does not know who has the producer id.
        """
        owner = self.owners.of(producer_id)
        if owner is None:
            return unknown
        if owner == transactional_id:
            return 0
        return self.refusal(WRITE_TRANSACTIONAL_ID, owner) or InvalidProducerIdMapping.code

    def refusal_of_topic(self, right: Right, name: str | None, topic_id: "UUID" = NO_UUID) -> int:
        """The error code for a topic that the request names, by its id if it has one."""
        if topic_id == NO_UUID:
            return self.refusal(right, name or "")
        known = self.names.get(topic_id)
        return UnknownTopicId.code if known is None else self.refusal(right, known)


Screen = Callable[[Asked], Verdict]


def sorted_out(entries: Iterable[T], code_of: Callable[[T], int]) -> tuple[tuple[T, ...], list[tuple[T, int]]]:
    """The entries that may pass, and the others with their error codes."""
    kept: list[T] = []
    denied: list[tuple[T, int]] = []
    for each in entries:
        if code := code_of(each):
            denied.append((each, code))
        else:
            kept.append(each)
    return tuple(kept), denied


def without_denied(
    asked: Asked,
    field: str,
    answer: Callable[..., Any],
    answers: str,
    code_of: Callable[[Any], int],
    refused: Callable[[Any, int], Any],
) -> Verdict:
    """Take denied entries out of a request, and add their errors to the response.

    Args:
        field: of the request, with the entries.
        answer: makes the response.
        answers: its field with a result for each entry.
        refused: returns the result for a denied entry.
    """
    kept, denied = sorted_out(getattr(asked.message, field), code_of)
    if not denied:
        return PASS
    results = _each_once([refused(each, code) for each, code in denied])
    if not kept:
        return Verdict(answer=answer(**{answers: results}))
    return Verdict(request=replace(asked.message, **{field: kept}), change=adding(answers, results))


def _each_once(results: Iterable[Any]) -> tuple[Any, ...]:
    """Results without repetitions: Kafka answers once for a topic that a request names twice."""
    return tuple({repr(each): each for each in results}.values())


def adding(field: str, results: Sequence[Any]) -> Change:
    """Returns a function that adds results to a field of a response."""
    return lambda response: replace(response, **{field: (*getattr(response, field), *results)})
