"""Transactions: what coordinators and partitions know of them, and how to abort a hanging one.

Rules:
- ListTransactions goes to every broker; DescribeTransactions and InitProducerId to the coordinators of the ids;
  DescribeProducers and WriteTxnMarkers to the leaders of the partitions.
- Each of several ids or partitions succeeds or fails separately. If a call is about a single one, its error is raised;
  if it is about several, `PartialFailure` has the others' results.
- A transaction hangs if it is open in a partition and its coordinator is not going to write a marker there: no
  coordinator knows the producer id, or its transaction does not have this partition, or its epoch is the older one, so
  that the marker would be refused. Only all brokers together can say that no coordinator knows it.
- Partitions are asked first, and again at the end: a transaction that has ended meanwhile did not hang.
- A marker is never written into a transaction that its coordinator is going to end, unless forced; and before a retry
  the partition is asked again, because another transaction of the producer may have begun after the first marker. The
  only exception is a producer that the caller named (`Writer`), for brokers that cannot list open transactions.

Source: KafkaAdminClient.java with ListTransactionsHandler, DescribeTransactionsHandler, DescribeProducersHandler,
AbortTransactionHandler, FenceProducersHandler; TransactionsCommand.java; KIP-664.
"""

import math
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple
from typing import Any, NamedTuple

from ottla.addresses import format_address
from ottla.codec.apis.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    TopicRequest,
)
from ottla.codec.apis.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from ottla.codec.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.codec.apis.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from ottla.codec.apis.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ottla.errors import (
    ConfigurationError,
    LocalProtocolError,
    OttlaError,
    PartialFailure,
    TransactionalIdNotFound,
    UnsupportedVersion,
    broker_error,
)
from ottla.sdk.admin import (
    OPEN_STATES,
    TRANSACTION_STATES,
    HangingTransaction,
    ProducerIdAndEpoch,
    ProducerState,
    TransactionDescription,
    TransactionListing,
)
from ottla.sdk.arguments import known
from ottla.sdk.calls.fan_out import (
    RETRY_FOR,
    Reply,
    all_or_partial,
    ask_brokers,
    ask_coordinators,
    ask_leaders,
    existing_places,
    left_out,
    listed,
    partitions_in,
    place_name,
    refuse_unsupported,
)
from ottla.sdk.calls.task import Task
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.connection import requests
from ottla.sdk.connection.versions import INITIALIZE, LIST_TRANSACTIONS_BY_DURATION
from ottla.sdk.core import ClientCore
from ottla.sdk.events import Node
from ottla.sdk.outcome import Outcome
from ottla.sdk.steps import Steps

Described = TransactionDescription | OttlaError
Producers = tuple[ProducerState, ...]
Scope = Iterable[str | TopicPartition] | None
"""Topics and partitions; ``None``: all of the cluster."""

_MOST = 500
"""Partitions per DescribeProducers, so that a request to the leader of very many stays small."""
_FENCING_TIMEOUT = 60.0
"""The longest transaction timeout of a fencing request, in seconds: brokers refuse one above their own limit."""

# -- what coordinators know -------------------------------------------------------------------------------------------


def list_transactions(
    core: ClientCore, states: Iterable[str], producer_ids: Iterable[int], running_longer: float | None, now: float
) -> Outcome[tuple[TransactionListing, ...]]:
    """List the transactional ids of all brokers, sorted; `PartialFailure` if a broker cannot be asked.

    Args:
        running_longer: only ids whose transaction has been open for more than so many seconds.

    Raises:
        ConfigurationError: there is no such state, or no transaction can be open in it.
    """
    wanted = known("transaction state", TRANSACTION_STATES, states)
    if running_longer is not None:  # the brokers' filter lets ids without an open transaction pass
        if ended := [each for each in wanted if each not in OPEN_STATES]:
            raise ConfigurationError(f"no transaction is open in state {ended[0]}: leave it out, or running_longer")
        wanted = wanted or list(OPEN_STATES)

    def work(task: Task[tuple[TransactionListing, ...]]) -> Steps[tuple[TransactionListing, ...]]:
        found, failures = yield from _list(task, wanted, producer_ids, running_longer)
        if failures:
            raise PartialFailure("listing transactions", found, failures)
        return found

    return Task(core, "listing transactions", now, work).outcome


def _list(
    task: Task[Any], states: Iterable[str], producer_ids: Iterable[int], running_longer: float | None = None
) -> Steps[tuple[tuple[TransactionListing, ...], dict[str, OttlaError]]]:
    """The brokers' listings, and the errors of brokers that cannot be asked."""
    request = ListTransactionsRequest(
        state_filters=tuple(states),
        producer_id_filters=tuple(producer_ids),
        duration_filter=-1 if running_longer is None else round(running_longer * 1000),
    )

    def build(version: int) -> ListTransactionsRequest:
        if running_longer is not None and version < LIST_TRANSACTIONS_BY_DURATION:
            what = "brokers know how long a transaction has been open since Kafka 3.8"
            instead = "`describe_transactions` shows when it began"
            raise UnsupportedVersion(f"ListTransactions: {what}; leave out running_longer, {instead}")
        return request

    def judge(answer: ListTransactionsResponse) -> OttlaError | None:
        return broker_error(answer.error_code, "ListTransactions") if answer.error_code else None

    answers, failures = yield from ask_brokers(task, "listing the transactions", request, judge, build)
    found = {
        each.transactional_id: TransactionListing(each.transactional_id, each.producer_id, each.transaction_state, node)
        for node, answer in answers.items()
        for each in answer.transaction_states
    }
    return tuple(each for _, each in sorted(found.items())), failures


def describe_transactions(
    core: ClientCore, transactional_ids: Sequence[str], now: float, timeout: float | None = None
) -> Outcome[dict[str, TransactionDescription]]:
    """Describe each id and its transaction; within ``timeout`` seconds, by default `api_timeout`."""

    def work(task: Task[dict[str, TransactionDescription]]) -> Steps[dict[str, TransactionDescription]]:
        return all_or_partial("describing transactions", (yield from _describe(task, transactional_ids)))

    return Task(core, f"describing {_named(transactional_ids)}", now, work, timeout).outcome


def _describe(task: Task[Any], ids: Iterable[str]) -> Steps[dict[str, Described]]:
    def send(node: Node, names: list[str]) -> Outcome[tuple[Any, int]]:
        return task.request(node, DescribeTransactionsRequest(transactional_ids=tuple(names)))

    def read(reply: Reply[str]) -> dict[str, Described]:
        answer: DescribeTransactionsResponse = reply.answer
        return {each.transactional_id: _description(each, reply.node) for each in answer.transaction_states}

    return (yield from ask_coordinators(task, task.core.transaction_coordinators, ids, send, read))


def _description(answer: TransactionState, node: Node) -> Described:
    if answer.error_code:
        return broker_error(answer.error_code, f"transactional id {answer.transactional_id!r}")
    began = answer.transaction_start_time_ms
    return TransactionDescription(
        transactional_id=answer.transactional_id,
        producer_id=answer.producer_id,
        producer_epoch=answer.producer_epoch,
        state=answer.transaction_state,
        timeout=answer.transaction_timeout_ms / 1000,
        start_timestamp=began if began >= 0 else None,
        partitions=tuple(sorted((topic.topic, each) for topic in answer.topics for each in topic.partitions)),
        coordinator=node,
    )


def fence_producers(
    core: ClientCore, transactional_ids: Sequence[str], now: float
) -> Outcome[dict[str, ProducerIdAndEpoch]]:
    """Give each id a new epoch, as a starting producer does: an open transaction is aborted first."""
    # The coordinator uses this timeout also to store the new epoch, so it must not be too short (KAFKA-16570).
    timeout = min(core.options.request_timeout, _FENCING_TIMEOUT)

    def work(task: Task[dict[str, ProducerIdAndEpoch]]) -> Steps[dict[str, ProducerIdAndEpoch]]:
        def send(node: Node, names: list[str]) -> Outcome[tuple[Any, int]]:
            request = InitProducerIdRequest(transactional_id=names[0], transaction_timeout_ms=round(timeout * 1000))
            return task.request(node, request, versions=INITIALIZE)

        def read(reply: Reply[str]) -> dict[str, ProducerIdAndEpoch | OttlaError]:
            answer: InitProducerIdResponse = reply.answer
            [name] = reply.keys
            if answer.error_code:
                return {name: broker_error(answer.error_code, f"transactional id {name!r}")}
            return {name: ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch)}

        coordinators = core.transaction_coordinators
        answers: dict[str, ProducerIdAndEpoch | OttlaError]
        answers = yield from ask_coordinators(task, coordinators, transactional_ids, send, read, most=1)
        return all_or_partial("fencing producers", answers)

    return Task(core, f"fencing the producers of {_named(transactional_ids)}", now, work).outcome


def _named(ids: Sequence[str]) -> str:
    return f"transactional id {ids[0]!r}" if len(ids) == 1 else f"{len(ids)} transactional ids"


# -- what partitions remember -----------------------------------------------------------------------------------------


def describe_producers(
    core: ClientCore, places: Sequence[TopicPartition], now: float, timeout: float | None = None
) -> Outcome[dict[TopicPartition, Producers]]:
    """The producers that each partition's leader remembers; within ``timeout`` seconds, by default `api_timeout`."""

    def work(task: Task[dict[TopicPartition, Producers]]) -> Steps[dict[TopicPartition, Producers]]:
        return all_or_partial("describing producers", (yield from remembered(task, places)), place_name)

    return Task(core, f"describing the producers of {listed(places)}", now, work, timeout).outcome


def remembered(
    task: Task[Any], places: Collection[TopicPartition], retry_for: float = math.inf
) -> Steps[dict[TopicPartition, Producers | OttlaError]]:
    """As a step of a call: the producers that each partition's leader remembers; ``retry_for``: see `ask_leaders`."""

    def send(node: Node, some: list[TopicPartition]) -> Outcome[tuple[Any, int]]:
        topics = requests.by_topic(some).items()
        asked = tuple(TopicRequest(name=name, partition_indexes=indexes) for name, indexes in topics)
        return task.request(node, DescribeProducersRequest(topics=asked))

    def read(reply: Reply[TopicPartition]) -> dict[TopicPartition, Producers | OttlaError]:
        answer: DescribeProducersResponse = reply.answer
        said = {(topic.name, each.partition_index): each for topic in answer.topics for each in topic.partitions}
        return {place: _producers(place, said[place]) if place in said else left_out(place) for place in reply.keys}

    there, gone = yield from existing_places(task, places)
    told = yield from ask_leaders(task, there, send, read, most=_MOST, retry_for=retry_for)
    return gone | told


def _producers(place: TopicPartition, answer: PartitionResponse) -> Producers | OttlaError:
    if answer.error_code:
        return broker_error(answer.error_code, answer.error_message or place_name(place))
    return tuple(
        ProducerState(
            producer_id=each.producer_id,
            producer_epoch=each.producer_epoch,
            last_sequence=each.last_sequence,
            last_timestamp=each.last_timestamp,
            coordinator_epoch=each.coordinator_epoch if each.coordinator_epoch >= 0 else None,
            transaction_start=each.current_txn_start_offset if each.current_txn_start_offset >= 0 else None,
        )
        for each in sorted(answer.active_producers, key=lambda each: each.producer_id)
    )


# -- transactions that hang -------------------------------------------------------------------------------------------

Open = tuple[TopicPartition, ProducerState]
"""A transaction that is open in a partition."""


def find_hanging_transactions(
    core: ClientCore, scope: Scope, max_transaction_timeout: float, now: float, wall: float
) -> Outcome[tuple[HangingTransaction, ...]]:
    """Find hanging transactions in ``scope``, sorted; `PartialFailure` if a partition or a broker cannot be asked.

    Args:
        max_transaction_timeout: seconds since the last record of a transaction before which it is not considered.
        wall: the difference between wall-clock time, in seconds since 1970, and the machine's time.
    """

    def work(task: Task[tuple[HangingTransaction, ...]]) -> Steps[tuple[HangingTransaction, ...]]:
        places = (yield from _every_partition(task)) if scope is None else (yield from partitions_in(task, scope))
        retry_for = min(RETRY_FOR, task.timeout / 4)
        told = yield from remembered(task, places, retry_for)
        refuse_unsupported(told.values())
        failures = {place_name(place): each for place, each in told.items() if isinstance(each, OttlaError)}
        before = (task.now + wall - max_transaction_timeout) * 1000
        hanging: list[HangingTransaction] = []
        if suspects := [each for each in _open(told) if each[1].last_timestamp < before]:
            owners, unasked = yield from owners_of(task, {producer.producer_id for _, producer in suspects})
            hanging = list(_hanging(suspects, owners, certain=not unasked))
            failures |= unasked
        if hanging:
            again = yield from remembered(task, [(each.topic, each.partition) for each in hanging], retry_for)
            still = {(*place, each.transaction_start, each.producer_id) for place, each in _open(again)}
            hanging = [each for each in hanging if astuple(each)[:4] in still]
            failures |= {place_name(place): each for place, each in again.items() if isinstance(each, OttlaError)}
        found = tuple(sorted(hanging, key=lambda each: (each.topic, each.partition, each.start_offset)))
        if failures:
            raise PartialFailure("finding hanging transactions", found, failures)
        return found

    return Task(core, "finding hanging transactions", now, work).outcome


def _every_partition(task: Task[Any]) -> Steps[list[TopicPartition]]:
    """All partitions of all topics; internal ones too, because transactions may hang in ``__consumer_offsets``."""
    answer = yield from task.ask_cluster(None)
    return sorted((each.name, one.partition_index) for each in answer.topics if each.name for one in each.partitions)


def _open(told: Mapping[TopicPartition, Producers | OttlaError]) -> Iterator[Open]:
    for place, producers in told.items():
        if not isinstance(producers, OttlaError):
            yield from ((place, each) for each in producers if each.transaction_start is not None)


def owners_of(
    task: Task[Any], producer_ids: Iterable[int]
) -> Steps[tuple[dict[int, TransactionDescription], dict[str, OttlaError]]]:
    """As a step of a call: the transactional ids that have these producer ids, and the errors of coordinators.

    Transactional ids that the client may not describe are missing, without an error.
    """
    listings, failures = yield from _list(task, (), sorted(producer_ids))
    described = yield from _describe(task, [each.transactional_id for each in listings])
    failures |= {
        f"transactional id {name!r}": each
        for name, each in described.items()
        if isinstance(each, OttlaError) and not isinstance(each, TransactionalIdNotFound)
    }
    found = (each for each in described.values() if isinstance(each, TransactionDescription))
    return {each.producer_id: each for each in found}, failures


def _hanging(
    suspects: Iterable[Open], owners: Mapping[int, TransactionDescription], *, certain: bool
) -> Iterator[HangingTransaction]:
    """Those of ``suspects`` that hang; if ``certain``, a producer id without an entry in ``owners`` has no owner."""
    for place, producer in suspects:
        owner = owners.get(producer.producer_id)
        reason = why_hanging(place, producer.producer_epoch, owner)
        if reason and producer.transaction_start is not None and (owner or certain):
            yield HangingTransaction(
                topic=place[0],
                partition=place[1],
                start_offset=producer.transaction_start,
                producer_id=producer.producer_id,
                producer_epoch=producer.producer_epoch,
                coordinator_epoch=producer.coordinator_epoch,
                last_timestamp=producer.last_timestamp,
                transactional_id=owner.transactional_id if owner else None,
                reason=reason,
            )


def why_hanging(place: TopicPartition, epoch: int, owner: TransactionDescription | None) -> str:
    """Why no coordinator ends the transaction; empty if ``owner``'s coordinator will."""
    if owner is None:
        return "no coordinator knows its producer id"
    whose = f"transactional id {owner.transactional_id!r}"
    if place not in owner.partitions:
        return f"{whose} is {owner.state}, and its transaction does not have this partition"
    if epoch > owner.producer_epoch:
        return f"{whose} has epoch {owner.producer_epoch}, whose marker would be refused"
    return ""


# -- aborting one -----------------------------------------------------------------------------------------------------


class Writer(NamedTuple):
    """The producer of a transaction that is to be aborted."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int

    def __str__(self) -> str:
        ids = f"producer id {self.producer_id}, epoch {self.producer_epoch}"
        return f"{ids}, coordinator epoch {self.coordinator_epoch}"


def abort_hanging_transaction(
    core: ClientCore, place: TopicPartition, which: int | Writer, force: bool, now: float
) -> Outcome[None]:
    """Let the leader of ``place`` write a marker into a transaction, given by its start offset or its producer.

    Args:
        force: even if its coordinator is going to end it, or if it is impossible to ask.
    """

    def work(task: Task[None]) -> Steps[None]:
        writer = which if isinstance(which, Writer) else _writer_at(place, which, (yield from _open_in(task, place)))
        if not force:
            yield from _refuse_owned(task, place, writer)
        while True:
            try:
                return (yield from _mark(task, place, writer))
            except OttlaError as error:
                core.metadata.refresh(task.now)
                yield from task.pause(error)
            if not isinstance(which, Writer):
                still = yield from _open_in(task, place)
                if all(each.transaction_start != which for each in still):
                    return  # the marker was written, although the response was lost

    return Task(core, f"aborting a transaction in {place_name(place)}", now, work).outcome


def _open_in(task: Task[Any], place: TopicPartition) -> Steps[list[ProducerState]]:
    """The producers that have an open transaction in the partition."""
    told = yield from remembered(task, [place])
    if isinstance(error := told[place], OttlaError):
        raise error
    return [producer for _, producer in _open(told)]


def _writer_at(place: TopicPartition, start_offset: int, producers: Iterable[ProducerState]) -> Writer:
    """The one of ``producers`` whose transaction begins at ``start_offset``."""
    for each in producers:
        if each.transaction_start == start_offset:
            return Writer(each.producer_id, each.producer_epoch, each.coordinator_epoch or 0)
    others = ", ".join(f"{each.transaction_start} (producer id {each.producer_id})" for each in producers)
    there = f"open ones begin at {others}" if others else "none is open there"
    raise LocalProtocolError(f"no transaction begins at offset {start_offset} of {place_name(place)}: {there}")


def _refuse_owned(task: Task[Any], place: TopicPartition, writer: Writer) -> Steps[None]:
    """Raise if a coordinator is going to end the transaction, or if it is impossible to ask."""
    try:
        owners, unasked = yield from owners_of(task, [writer.producer_id])
    except UnsupportedVersion as error:
        what = "these brokers cannot say whether a coordinator is going to end the transaction"
        raise UnsupportedVersion(f"{what}; `force` skips the question: {error.detail}") from None
    owner = owners.get(writer.producer_id)
    if owner is None and unasked:
        raise PartialFailure("it is unknown whether a coordinator is going to end the transaction", None, unasked)
    if owner is not None and not why_hanging(place, writer.producer_epoch, owner):
        name, node = owner.transactional_id, owner.coordinator
        whose = f"the transaction in {place_name(place)} belongs to transactional id {name!r}, {owner.state}"
        ends = f"its coordinator, node {node.id} ({format_address(node.host, node.port)}), ends it"
        when = f"{owner.timeout:g} s after its beginning at the latest"
        fence = f"`ottla transactions fence {shlex.quote(name)}`"
        instead = f"wait, or fence its producer ({fence}); `force` would abort only this part of it"
        raise LocalProtocolError(f"{whose}: {ends} {when}; {instead}")


def _mark(task: Task[Any], place: TopicPartition, writer: Writer) -> Steps[None]:
    """Let the leader write the marker, once."""
    topic = WritableTxnMarkerTopic(name=place[0], partition_indexes=(place[1],))
    marker = WritableTxnMarker(
        producer_id=writer.producer_id,
        producer_epoch=writer.producer_epoch,
        transaction_result=False,
        topics=(topic,),
        # A producer without a marker there has no coordinator epoch: 0 is not above any coordinator's.
        coordinator_epoch=max(writer.coordinator_epoch, 0),
    )

    def send(node: Node, some: list[TopicPartition]) -> Outcome[tuple[Any, int]]:
        return task.request(node, WriteTxnMarkersRequest(markers=(marker,)))

    def read(reply: Reply[TopicPartition]) -> dict[TopicPartition, OttlaError | None]:
        answer: WriteTxnMarkersResponse = reply.answer
        codes = {
            (topic.name, each.partition_index): each.error_code
            for result in answer.markers
            for topic in result.topics
            for each in topic.partitions
        }
        if place not in codes:
            return {place: left_out(place)}
        what = f"{place_name(place)}, {writer}: check again which transactions are open there"
        return {place: broker_error(codes[place], what) if codes[place] else None}

    there, gone = yield from existing_places(task, [place])
    if gone:
        raise gone[place]
    try:
        yield from ask_leaders(task, there, send, read, strict=True, retry_for=0.0)
    except UnsupportedVersion as error:
        raise UnsupportedVersion(
            f"{error.detail}; a proxy does not forward it: connect to the brokers directly"
        ) from None
