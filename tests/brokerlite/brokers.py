"""Two brokers that take the same requests: Apache Kafka behind a socket, and brokerlite's machine in this process."""

import re
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from ottla.brokerlite.machines.transaction import LAST_EPOCH
from ottla.codec.apis import APIS
from ottla.codec.apis.describe_transactions import DescribeTransactionsRequest
from ottla.codec.apis.find_coordinator import GROUP, TRANSACTION, FindCoordinatorRequest
from ottla.codec.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.codec.frames import build_response, parse_response
from ottla.codec.wire import api
from tests.brokerlite.machine import NEWEST, TODAY, Machine
from tests.brokerlite.peer import Peer

PATIENCE = 30.0
"""Seconds that a broker may take for what it does by itself; Kafka looks for time-outs every ten."""
_TRANSIENT = {14, 15, 16}
"""A coordinator is being loaded, or not known yet."""


class Broker(Protocol):
    """Takes requests."""

    def ask(self, message: Any, version: int | None = None) -> Any: ...

    def settle(self, transactional_ids: Iterable[str]) -> None:
        """Return when no transaction is being ended."""

    def pass_timeout(self, transactional_ids: Iterable[str], timeout_ms: int) -> None:
        """Return when every open transaction has taken too long, and is ended."""

    def use_up_epochs(self, transactional_id: str, left: int) -> None:
        """Raise an id's epoch until ``left`` more are before the last that a client gets."""

    @property
    def timestamp(self) -> int: ...


class InProcess:
    """brokerlite's machine; its answers go through the bytes of their version."""

    def __init__(self, data: Path) -> None:
        self.machine = Machine(data)

    def ask(self, message: Any, version: int | None = None) -> Any:
        key = api(type(message)).key
        version = NEWEST[key] if version is None else version
        answer = build_response(self.machine.ask(message, version), version, 0)
        return parse_response(APIS[key].response, version, answer[4:])[1]

    def settle(self, transactional_ids: Iterable[str]) -> None:
        pass

    def pass_timeout(self, transactional_ids: Iterable[str], timeout_ms: int) -> None:
        self.machine.now += timeout_ms / 1000
        self.machine.poll()

    def use_up_epochs(self, transactional_id: str, left: int) -> None:
        known = self.machine.core.transactions.by_id
        known[transactional_id] = replace(known[transactional_id], epoch=LAST_EPOCH - left)

    @property
    def timestamp(self) -> int:
        return TODAY


class Remote:
    """A broker behind a socket, which ends transactions when it finds the time."""

    def __init__(self, bootstrap: str) -> None:
        host, port = bootstrap.split(":")
        self._peer = Peer(int(port), host, timeout=PATIENCE)
        for key_type in (GROUP, TRANSACTION):  # which makes the internal topics
            self.ask(FindCoordinatorRequest(key="any", key_type=key_type), 3)

    def ask(self, message: Any, version: int | None = None) -> Any:
        deadline = time.monotonic() + PATIENCE
        while True:
            answer = self._peer.ask(message, version)
            codes = {int(code) for code in re.findall(r"error_code=(-?\d+)", repr(answer))}
            if not codes & _TRANSIENT or time.monotonic() > deadline:
                return answer
            time.sleep(0.02)

    def settle(self, transactional_ids: Iterable[str]) -> None:
        self._until(transactional_ids, "Prepare")

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
        deadline = time.monotonic() + PATIENCE
        while any(re.match(unwanted, each.transaction_state) for each in self.ask(request, 0).transaction_states):
            assert time.monotonic() < deadline, f"a transaction stays {unwanted}"
            time.sleep(0.002)

    @property
    def timestamp(self) -> int:
        return int(time.time() * 1000)

    def close(self) -> None:
        self._peer.close()
