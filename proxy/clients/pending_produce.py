"""Collects the response to one Produce request from the proxy's results and upstream's response."""

from collections.abc import Callable, Iterable
from dataclasses import replace

from ottla.codec.apis.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from ottla.errors import PolicyViolation, RemoteProtocolError, TransactionAbortable
from ottla.proxy.clients.carried import ABORTABLE_SINCE, PRODUCE
from ottla.proxy.clients.dialects import Dialect
from ottla.proxy.clients.windows import ClientResult

MOST_NAMED = 1000
"""The most records that a response names: some 3 ms of work, and 40 KB."""


class PendingProduce:
    """Collects the results of a Produce request's partitions, and answers when it has all of them."""

    def __init__(
        self,
        request: ProduceRequest,
        version: int,
        dialect: Dialect,
        respond: Callable[[ProduceResponse], None],
    ) -> None:
        self.version = version
        self._dialect, self._transactional = dialect, request.transactional_id is not None
        self._respond = respond
        self._order = [(topic.name, [each.index for each in topic.partition_data]) for topic in request.topic_data]
        self._places = {(name, index) for name, indexes in self._order for index in indexes}
        self.names_a_partition_twice = len(self._places) < sum(len(indexes) for _, indexes in self._order)
        self._passed: set[tuple[str, int]] = set()
        """The partitions that upstream answers for."""
        self._answered = False
        self._nameable = MOST_NAMED
        """How many records the response may still name."""
        self._settled: dict[tuple[str, int], PartitionProduceResponse] = {}
        self._upstream = ProduceResponse(responses=())

    def settle(self, topic: str, partition: int, outcome: ClientResult, now: float) -> None:
        """Take the proxy's result for one partition."""
        code = self._dialect.of(outcome.error_code, transactional=self._transactional)
        if code == TransactionAbortable.code and self.version < ABORTABLE_SINCE[PRODUCE]:
            code = PolicyViolation.code  # no client retries after it, and it ends no producer
        named = outcome.record_errors[: self._nameable]
        self._nameable -= len(named)
        self._settled[topic, partition] = PartitionProduceResponse(
            index=partition,
            error_code=code,
            base_offset=outcome.base_offset,
            log_append_time_ms=outcome.append_time,
            error_message=outcome.error_message,
            record_errors=tuple(
                BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=why) for index, why in named
            ),
        )
        self.answer_if_complete()

    def pass_on(self, topics: Iterable[TopicProduceData]) -> None:
        """Expect upstream's response for these partitions."""
        self._passed = {(topic.name, each.index) for topic in topics for each in topic.partition_data}

    @property
    def passes_whole(self) -> bool:
        """Upstream answers for all partitions of the request."""
        return self._passed == self._places

    def take(self, answer: ProduceResponse) -> None:
        """Take upstream's response for its partitions.

        Raises:
            RemoteProtocolError: the response lacks a partition.
        """
        answered = {(topic.name, each.index): each for topic in answer.responses for each in topic.partition_responses}
        if missing := self._passed - answered.keys():
            raise RemoteProtocolError(f"the Produce response lacks {len(missing)} of the partitions")
        self._upstream = answer
        self._settled |= {place: answered[place] for place in self._passed}
        self.answer_if_complete()

    def answer_if_complete(self) -> None:
        """Answer if every partition is settled; a request may have no partitions."""
        if not self._answered and self._settled.keys() >= self._places:
            self._answered = True
            self._respond(self._response())

    def _response(self) -> ProduceResponse:
        responses = tuple(
            TopicProduceResponse(name=name, partition_responses=tuple(self._settled[name, index] for index in indexes))
            for name, indexes in self._order
        )
        return replace(self._upstream, responses=responses)
