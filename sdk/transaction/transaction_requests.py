"""The requests of one transactional producer to the coordinator of its transactional id.

Each method starts a `Task`, which sends the request until its outcome is definite. Afterwards ``task.repeated`` says
whether an earlier attempt may have been carried out, or may still be.

Source: TransactionManager.java (InitProducerIdHandler, AddPartitionsToTxnHandler, AddOffsetsToTxnHandler,
EndTxnHandler).
"""

from collections.abc import Iterable
from functools import partial
from typing import Any, TypeVar

from ottla.codec.apis.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from ottla.codec.apis.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from ottla.codec.apis.end_txn import EndTxnRequest, EndTxnResponse
from ottla.codec.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.errors import OperationNotAttempted, OttlaError, RemoteProtocolError, broker_error
from ottla.sdk.admin import TransactionDescription
from ottla.sdk.calls.task import Task
from ottla.sdk.calls.transactions import describe_transactions
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.connection.versions import (
    ADD_OFFSETS,
    ADD_PARTITIONS,
    END_TRANSACTION,
    END_TRANSACTION_2,
    INITIALIZE,
    INITIALIZE_AGAIN,
    Range,
)
from ottla.sdk.core import ClientCore
from ottla.sdk.produce.producer_identity import Identity
from ottla.sdk.steps import Steps, settled
from ottla.sdk.transaction.asking import ask_coordinator
from ottla.sdk.transaction.fencing import LIMIT
from ottla.sdk.transaction.states import IMPLICIT

T = TypeVar("T")


class RequestWatch:
    """Waits for the requests of a flow, one after the other, and keeps the reason of the last failure."""

    def __init__(self) -> None:
        self._task: Task[Any] | None = None
        self._error: OttlaError | None = None
        """The error of the last request."""

    @property
    def trouble(self) -> str:
        """A text for people: why the request in flight is repeated, or why the one before has failed."""
        trouble = self._task.trouble if self._task is not None else ""
        return trouble or str(self._error or "")

    def wait(self, task: Task[T]) -> Steps[T]:
        """Wait for a request; raises its error."""
        self._task = task
        try:
            answer = yield from settled(task.outcome)
        except OttlaError as error:
            self._error = error
            raise
        finally:
            self._task = None
        self._error = None
        return answer


class TransactionRequests:
    """Sends the requests of the producer with ``transactional_id``."""

    def __init__(self, core: ClientCore, transactional_id: str) -> None:
        self._core, self.transactional_id = core, transactional_id

    def init_producer_id(self, former: Identity | None, timeout: float) -> Task[InitProducerIdResponse]:
        """Fence the previous producer, and get an identity; ``former``: the epoch to bump; ``timeout``: in seconds."""
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=round(timeout * 1000),
            producer_id=former.producer_id if former else -1,
            producer_epoch=former.epoch if former else -1,
        )
        return self._send("InitProducerId", request, INITIALIZE_AGAIN if former else INITIALIZE)

    def add_partitions(self, identity: Identity, places: Iterable[TopicPartition]) -> Task[AddPartitionsToTxnResponse]:
        topics: dict[str, list[int]] = {}
        for topic, index in places:
            topics.setdefault(topic, []).append(index)
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=identity.producer_id,
            v3_and_below_producer_epoch=identity.epoch,
            v3_and_below_topics=tuple(
                AddPartitionsToTxnTopic(name=name, partitions=tuple(indexes)) for name, indexes in topics.items()
            ),
        )
        return self._send("AddPartitionsToTxn", request, ADD_PARTITIONS, topics)

    def add_offsets(self, identity: Identity, group: str) -> Task[AddOffsetsToTxnResponse]:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            group_id=group,
        )
        return self._send("AddOffsetsToTxn", request, ADD_OFFSETS)

    def end(self, identity: Identity, *, committed: bool, version: int) -> Task[EndTxnResponse]:
        """Commit or abort a transaction of this protocol version."""
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            committed=committed,
        )
        return self._send("EndTxn", request, END_TRANSACTION_2 if version >= IMPLICIT else END_TRANSACTION)

    def describe(self) -> Steps[TransactionDescription | None]:
        """The coordinator's state of the transactional id; ``None`` if it does not tell within `LIMIT`."""
        described = describe_transactions(self._core, [self.transactional_id], self._core.now, LIMIT)
        yield described
        return None if described.error else described.result()[self.transactional_id]

    def forget_coordinator(self) -> None:
        """Look up the coordinator again before the next request."""
        self._core.transaction_coordinators.forget(self.transactional_id)

    def _send(self, api: str, request: Any, versions: Range, topics: Iterable[str] = ()) -> Task[Any]:
        judge = partial(_judge, request, f"transactional id {self.transactional_id!r}")
        coordinators = self._core.transaction_coordinators

        def work(task: Task[Any]) -> Steps[Any]:
            return ask_coordinator(task, coordinators, self.transactional_id, request, judge, versions, topics)

        return Task(self._core, f"{api} of {self.transactional_id!r}", self._core.now, work)


def _judge(request: Any, what: str, answer: Any) -> OttlaError | None:
    """The first error in a response, or an error if it leaves out what was asked for."""
    if not isinstance(answer, AddPartitionsToTxnResponse):
        if answer.error_code:
            return broker_error(answer.error_code, what)
        if isinstance(answer, InitProducerIdResponse) and min(answer.producer_id, answer.producer_epoch) < 0:
            return RemoteProtocolError(f"InitProducerId was answered without a producer id: {what}")
        return None
    answered = {
        (topic.name, each.partition_index): each.partition_error_code
        for topic in answer.results_by_topic_v3_and_below
        for each in topic.results_by_partition
    }
    for topic in request.v3_and_below_topics:
        if any((topic.name, each) not in answered for each in topic.partitions):
            return RemoteProtocolError(f"AddPartitionsToTxn was answered without all of {topic.name!r}: {what}")
    # The other partitions of a refused request get OPERATION_NOT_ATTEMPTED, which says nothing about the reason.
    refused = ((place, code) for place, code in answered.items() if code not in (0, OperationNotAttempted.code))
    return next((broker_error(code, f"{what}, {name}-{index}") for (name, index), code in refused), None)
