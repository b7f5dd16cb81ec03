"""Transactions: what their coordinators know, what partitions remember, and how to be rid of one that hangs.

Rules:
- ListTransactions goes to every broker, DescribeTransactions and InitProducerId to the coordinators of the ids,
  DescribeProducers and WriteTxnMarkers to the leaders of the partitions.
- Of several ids or partitions each succeeds or fails by itself. Where one was asked for, its error is raised; where
  several were, `PartialFailure` has what the others gave.

Source: KafkaAdminClient.java with ListTransactionsHandler, DescribeTransactionsHandler, DescribeProducersHandler.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any

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
from ottla.errors import OttlaError, broker_error
from ottla.sdk.admin import ProducerState, TransactionDescription
from ottla.sdk.calls.call import Task
from ottla.sdk.calls.fan_out import (
    Reply,
    all_or_partial,
    ask_coordinators,
    ask_leaders,
    existing,
    left_out,
    listed,
    place_name,
)
from ottla.sdk.cluster.cluster import TopicPartition
from ottla.sdk.connection import requests
from ottla.sdk.core import ClientCore
from ottla.sdk.events import Node
from ottla.sdk.outcome import Outcome
from ottla.sdk.steps import Steps

Producers = tuple[ProducerState, ...]

_MOST = 500
"""Partitions of one DescribeProducers: a leader of very many is not asked about all of them at once."""

# -- what coordinators know -------------------------------------------------------------------------------------------


def describe_transactions(
    core: ClientCore, transactional_ids: Sequence[str], now: float, timeout: float | None = None
) -> Outcome[dict[str, TransactionDescription]]:
    """Each id and its transaction, of their coordinators; within ``timeout`` seconds, by default `api_timeout`."""

    def work(task: Task[dict[str, TransactionDescription]]) -> Steps[dict[str, TransactionDescription]]:
        return all_or_partial("describing transactions", (yield from _describe(task, transactional_ids)))

    return Task(core, f"describing {_named(transactional_ids)}", now, work, timeout).outcome


def _describe(task: Task[Any], ids: Iterable[str]) -> Steps[dict[str, TransactionDescription | OttlaError]]:
    def send(node: Node, names: list[str]) -> Outcome[tuple[Any, int]]:
        return task.request(node, DescribeTransactionsRequest(transactional_ids=tuple(names)))

    def read(reply: Reply[str]) -> dict[str, TransactionDescription | OttlaError]:
        answer: DescribeTransactionsResponse = reply.answer
        return {each.transactional_id: _description(each, reply.node) for each in answer.transaction_states}

    return (yield from ask_coordinators(task, task.core.transaction_coordinators, ids, send, read))


def _description(answer: TransactionState, node: Node) -> TransactionDescription | OttlaError:
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


def _named(ids: Sequence[str]) -> str:
    return f"transactional id {ids[0]!r}" if len(ids) == 1 else f"{len(ids)} transactional ids"


# -- what partitions remember -----------------------------------------------------------------------------------------


def describe_producers(
    core: ClientCore, places: Sequence[TopicPartition], now: float, timeout: float | None = None
) -> Outcome[dict[TopicPartition, Producers]]:
    """The producers that each partition's leader remembers; within ``timeout`` seconds, by default `api_timeout`."""

    def work(task: Task[dict[TopicPartition, Producers]]) -> Steps[dict[TopicPartition, Producers]]:
        return all_or_partial("describing producers", (yield from _remembered(task, places)), place_name)

    return Task(core, f"describing the producers of {listed(places)}", now, work, timeout).outcome


def _remembered(
    task: Task[Any], places: Iterable[TopicPartition], patience: float = math.inf
) -> Steps[dict[TopicPartition, Producers | OttlaError]]:
    def send(node: Node, some: list[TopicPartition]) -> Outcome[tuple[Any, int]]:
        topics = requests.by_topic(some).items()
        asked = tuple(TopicRequest(name=name, partition_indexes=indexes) for name, indexes in topics)
        return task.request(node, DescribeProducersRequest(topics=asked))

    def read(reply: Reply[TopicPartition]) -> dict[TopicPartition, Producers | OttlaError]:
        answer: DescribeProducersResponse = reply.answer
        said = {(topic.name, each.partition_index): each for topic in answer.topics for each in topic.partitions}
        return {place: _producers(place, said[place]) if place in said else left_out(place) for place in reply.keys}

    there, gone = yield from existing(task, places)
    told = yield from ask_leaders(task, there, send, read, most=_MOST, patience=patience)
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
