"""Two brokers that take the same requests: Apache Kafka behind a socket, and brokerlite's machine in this process."""

import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from ottla.brokerlite.machines.topics.topics import TopicPartition
from ottla.brokerlite.machines.transactions.transaction_metadata import LAST_EPOCH, TransactionMetadata
from ottla.codec.apis import APIS
from ottla.codec.apis.create_topics import CreateTopicsRequest
from ottla.codec.apis.describe_transactions import DescribeTransactionsRequest, TransactionState
from ottla.codec.apis.find_coordinator import GROUP, TRANSACTION, FindCoordinatorRequest
from ottla.codec.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.codec.frames import build_response, parse_response
from ottla.codec.wire import api
from ottla.errors import InvalidReplicationFactor
from tests.brokerlite.machine import NEWEST, TODAY, Machine
from tests.brokerlite.peer import Peer
from tests.patience import HUNG

_TRANSIENT = {14, 15, 16}
"""Error codes of a coordinator that is loading, or not known yet."""


def _of_a_fenced_broker(message: Any) -> set[int]:
    """The error code of Apache Kafka where it has no broker for a replica: on a busy machine it fences its only one."""
    one_is_enough = isinstance(message, CreateTopicsRequest) and all(
        each.replication_factor in (-1, 1) for each in message.topics
    )
    return {InvalidReplicationFactor.code} if one_is_enough else set()


class Broker(Protocol):
    """Takes requests.

    Attributes:
        assignments: the node of each partition of a topic; if empty, the broker assigns. Requests go to the first node.
    """

    assignments: tuple[int, ...]

    def ask(self, message: Any, version: int | None = None) -> Any: ...

    def settle(self, transactional_ids: Iterable[str]) -> None:
        """Return once no transaction is being ended, except those whose markers are held back."""

    def hold(self) -> None:
        """From now on, partitions with a number above 0 get no transaction markers."""

    def let_go(self) -> None:
        """End `hold`."""

    def pass_timeout(self, transactional_ids: Iterable[str], timeout_ms: int) -> None:
        """Return once every open transaction has exceeded its timeout and is aborted."""

    def use_up_epochs(self, transactional_id: str, left: int) -> None:
        """Raise an id's epoch until ``left`` more follow before the last one that a client can get."""

    @property
    def timestamp(self) -> int: ...


class InProcess:
    """brokerlite's machine; each response is built and parsed in its version."""

    assignments: tuple[int, ...] = ()

    def __init__(self, data: Path) -> None:
        self.machine = Machine(data)
        self._mark = self.machine.core.transactions._ends._mark

    def ask(self, message: Any, version: int | None = None) -> Any:
        key = api(type(message)).key
        version = NEWEST[key] if version is None else version
        answer = build_response(self.machine.ask(message, version), version, 0)
        return parse_response(APIS[key].response, version, answer[4:])[1]

    def settle(self, transactional_ids: Iterable[str]) -> None:
        pass

    def hold(self) -> None:
        def mark(transaction: TransactionMetadata) -> Iterator[TopicPartition]:
            free = tuple(place for place in transaction.partitions if not is_held(place))
            yield from self._mark(replace(transaction, partitions=free))
            yield from filter(is_held, transaction.partitions)

        self.machine.core.transactions._ends._mark = mark

    def let_go(self) -> None:
        self.machine.core.transactions._ends._mark = self._mark
        self.machine.pass_time(2.0)

    def pass_timeout(self, transactional_ids: Iterable[str], timeout_ms: int) -> None:
        self.machine.now += timeout_ms / 1000
        self.machine.poll()

    def use_up_epochs(self, transactional_id: str, left: int) -> None:
        known = self.machine.core.transactions.by_id
        known[transactional_id] = replace(known[transactional_id], epoch=LAST_EPOCH - left)

    @property
    def timestamp(self) -> int:
        return TODAY


def is_held(place: tuple[str, int]) -> bool:
    """Whether `Broker.hold` holds back the markers of a partition."""
    return place[1] > 0 and not place[0].startswith("__")


def _waits_for_held(state: TransactionState) -> bool:
    places = [(topic.topic, index) for topic in state.topics for index in topic.partitions]
    return bool(places) and all(map(is_held, places))


class Remote:
    """A broker behind a socket, which ends transactions asynchronously.

    Args:
        other: pauses (``True``) or resumes (``False``) the node that leads all partitions with a number above 0, and
            no others.
    """

    def __init__(self, bootstrap: str, other: Callable[[bool], None] | None = None) -> None:
        self._other, self._holds = other, False
        self.assignments: tuple[int, ...] = () if other is None else (0, 1)
        self._peer = self.peer(bootstrap)
        for key_type in (GROUP, TRANSACTION):  # creates the internal topics
            self.ask(FindCoordinatorRequest(key="any", key_type=key_type), 3)

    @staticmethod
    def peer(bootstrap: str) -> Peer:
        host, port = bootstrap.split(":")
        return Peer(int(port), host, timeout=HUNG)

    def ask(self, message: Any, version: int | None = None) -> Any:
        deadline = time.monotonic() + HUNG
        while True:
            answer = self._peer.ask(message, version)
            codes = {int(code) for code in re.findall(r"error_code=(-?\d+)", repr(answer))}
            if not codes & (_TRANSIENT | _of_a_fenced_broker(message)) or time.monotonic() > deadline:
                return answer
            time.sleep(0.02)

    def settle(self, transactional_ids: Iterable[str]) -> None:
        self._until(transactional_ids, "Prepare")

    def hold(self) -> None:
        assert self._other is not None
        self._other(True)
        self._holds = True

    def let_go(self) -> None:
        assert self._other is not None
        self._other(False)
        self._holds = False

    def pass_timeout(self, transactional_ids: Iterable[str], timeout_ms: int) -> None:
        self._until(transactional_ids, "Prepare|Ongoing")

    def use_up_epochs(self, transactional_id: str, left: int) -> None:
        again = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
        epoch = self.ask(again, 4).producer_epoch
        while epoch < LAST_EPOCH - left:
            ahead = min(500, LAST_EPOCH - left - epoch)
            for _ in range(ahead):
                self._peer.send(again, 4)
            answers = [parse_response(InitProducerIdResponse, 4, self._peer.frame())[1] for _ in range(ahead)]
            epoch = answers[-1].producer_epoch

    def _until(self, transactional_ids: Iterable[str], unwanted: str) -> None:
        request = DescribeTransactionsRequest(transactional_ids=tuple(transactional_ids))
        deadline = time.monotonic() + HUNG
        while any(
            re.match(unwanted, each.transaction_state) and not (self._holds and _waits_for_held(each))
            for each in self.ask(request, 0).transaction_states
        ):
            assert time.monotonic() < deadline, f"a transaction remains in state {unwanted}"
            time.sleep(0.002)

    @property
    def timestamp(self) -> int:
        return int(time.time() * 1000)

    def close(self) -> None:
        self._peer.close()
