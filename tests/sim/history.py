"""The history of a run, for people: times, requests and answers, users' calls and results, faults."""

from collections.abc import Iterator
from typing import Any

from ottla.codec.apis.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from ottla.codec.apis.end_txn import EndTxnRequest
from ottla.codec.apis.fetch import FetchRequest, FetchResponse
from ottla.codec.apis.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.codec.apis.heartbeat import HeartbeatRequest
from ottla.codec.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.codec.apis.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.codec.apis.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from ottla.codec.apis.metadata import MetadataRequest, MetadataResponse
from ottla.codec.apis.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from ottla.codec.apis.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from ottla.codec.apis.produce import ProduceRequest, ProduceResponse
from ottla.codec.apis.sync_group import SyncGroupRequest, SyncGroupResponse
from ottla.codec.apis.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from ottla.codec.consumer_protocol import parse_assignment
from ottla.codec.records import parse_batch, read_batches
from ottla.errors import BrokerError, broker_error
from tests.sim.clock import Clock


class History:
    """Keeps lines only if ``wanted``: a run can be replayed from its seed."""

    def __init__(self, clock: Clock, wanted: bool) -> None:
        self._clock, self.wanted = clock, wanted
        self.lines: list[str] = []

    def add(self, mark: str, who: str, text: str) -> None:
        """Add a line; ``mark`` is ``>`` for a request, ``<`` for an answer, ``×`` for a broken connection, ``!`` for a
        fault, ``·`` for a user, ``#`` for the cluster."""
        if self.wanted:
            self.lines.append(f"{self._clock.now:9.4f}  {mark} {who:<8} {text}")

    def request(self, who: str, number: int, message: Any) -> None:
        if self.wanted:
            self.add(">", who, f"{number} {' '.join([_name(message), *_asked(message)])}")

    def answer(self, who: str, number: int, message: Any) -> None:
        if self.wanted:
            self.add("<", who, f"{number} {' '.join([_name(message), *_answered(message)])}")


def _name(message: Any) -> str:
    return type(message).__name__.removesuffix("Request").removesuffix("Response")


def code(number: int) -> str:
    """The name of an error code; empty for code 0."""
    error = broker_error(number, "")
    return "" if not number else error.name if isinstance(error, BrokerError) else str(number)


def _asked(message: Any) -> Iterator[str]:
    match message:
        case ProduceRequest():
            yield f"acks={message.acks}"
            for topic in message.topic_data:
                for data in topic.partition_data:
                    batch = parse_batch(data.records or b"")
                    who = f"id {batch.producer_id}/{batch.producer_epoch} sequence {batch.base_sequence}"
                    yield f"{topic.name}-{data.index} ({who}, {batch.count} records)"
        case FetchRequest():
            if message.session_epoch >= 0:
                yield f"session {message.session_id}/{message.session_epoch}"
            for wanted in message.topics:
                for each in wanted.partitions:
                    yield f"{wanted.topic}-{each.partition}@{each.fetch_offset} (epoch {each.current_leader_epoch})"
            for forgotten in message.forgotten_topics_data:
                yield f"without {forgotten.topic}-{forgotten.partitions}"
        case ListOffsetsRequest():
            for listed in message.topics:
                yield from (f"{listed.name}-{each.partition_index}@{each.timestamp}" for each in listed.partitions)
        case MetadataRequest():
            yield "all" if message.topics is None else ",".join(each.name or "?" for each in message.topics)
        case _:
            yield from _asked_of_groups(message)


def _asked_of_groups(message: Any) -> Iterator[str]:
    match message:
        case FindCoordinatorRequest():
            yield message.key or ",".join(message.coordinator_keys)
        case JoinGroupRequest():
            yield f"{message.member_id or 'as a new member'} {','.join(each.name for each in message.protocols)}"
        case SyncGroupRequest():
            yield f"{message.member_id} generation {message.generation_id}"
            for part in message.assignments:
                yield f"{part.member_id}: {_places(part.assignment)}"
        case HeartbeatRequest():
            yield f"{message.member_id} generation {message.generation_id}"
        case OffsetCommitRequest():
            yield f"{message.member_id} generation {message.generation_id_or_member_epoch}"
            for topic in message.topics:
                yield from (f"{topic.name}-{each.partition_index}={each.committed_offset}" for each in topic.partitions)
        case OffsetFetchRequest():
            yield f"{message.group_id or message.groups}"
        case _:
            yield from _asked_of_transactions(message)


def _asked_of_transactions(message: Any) -> Iterator[str]:
    match message:
        case InitProducerIdRequest():
            yield f"id {message.producer_id}/{message.producer_epoch}"
        case EndTxnRequest():
            yield f"{'commit' if message.committed else 'abort'} id {message.producer_id}/{message.producer_epoch}"
        case AddPartitionsToTxnRequest():
            yield from (f"{each.name}-{list(each.partitions)}" for each in message.v3_and_below_topics)
        case TxnOffsetCommitRequest():
            yield f"{message.member_id} generation {message.generation_id_or_member_epoch}"
            yield f"id {message.producer_id}/{message.producer_epoch}"
            for topic in message.topics:
                yield from (f"{topic.name}-{each.partition_index}={each.committed_offset}" for each in topic.partitions)


def _answered(message: Any) -> Iterator[str]:
    yield code(getattr(message, "error_code", 0))
    match message:
        case ProduceResponse():
            for topic in message.responses:
                for each in topic.partition_responses:
                    yield f"{topic.name}-{each.index} {code(each.error_code) or f'at {each.base_offset}'}"
        case FetchResponse():
            for read in message.responses:
                for data in read.partitions:
                    yield f"{read.topic}-{data.partition_index} {code(data.error_code) or _span(data.records or b'')}"
        case ListOffsetsResponse():
            for found in message.topics:
                for offset in found.partitions:
                    yield f"{found.name}-{offset.partition_index} {code(offset.error_code) or offset.offset}"
        case MetadataResponse():
            yield f"nodes {[each.node_id for each in message.brokers]}"
            for told in message.topics:
                leaders = (f"{each.partition_index}:{each.leader_id}/{each.leader_epoch}" for each in told.partitions)
                yield f"{told.name} {code(told.error_code)} {' '.join(leaders)}"
        case InitProducerIdResponse():
            yield f"id {message.producer_id}/{message.producer_epoch}"
        case _:
            yield from _answered_of_groups(message)


def _answered_of_groups(message: Any) -> Iterator[str]:
    match message:
        case FindCoordinatorResponse():
            yield f"node {message.node_id}" if not message.coordinators else f"{message.coordinators}"
        case JoinGroupResponse():
            yield f"{message.member_id} generation {message.generation_id} leader {message.leader}"
        case SyncGroupResponse():
            yield _places(message.assignment)
        case AddPartitionsToTxnResponse():
            for joined in message.results_by_topic_v3_and_below:
                yield from (code(each.partition_error_code) or "ok" for each in joined.results_by_partition)
        case OffsetCommitResponse() | TxnOffsetCommitResponse():
            for topic in message.topics:
                yield from (
                    f"{topic.name}-{each.partition_index} {code(each.error_code) or 'ok'}" for each in topic.partitions
                )
        case OffsetFetchResponse():
            for group in message.groups:
                for held in group.topics:
                    yield from (
                        f"{held.name}-{each.partition_index}={each.committed_offset}" for each in held.partitions
                    )
            for kept in message.topics:
                yield from (f"{kept.name}-{each.partition_index}={each.committed_offset}" for each in kept.partitions)


def _places(assignment: bytes) -> str:
    if not assignment:
        return "nothing"
    found = parse_assignment(assignment)[1].assigned_partitions
    return " ".join(f"{each.topic}{list(each.partitions)}" for each in found) or "nothing"


def _span(records: Any) -> str:
    batches = list(read_batches(records))
    return f"{batches[0].base_offset}..{batches[-1].last_offset}" if batches else "nothing"
