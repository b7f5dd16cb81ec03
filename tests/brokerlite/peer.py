"""A client that consists of a socket and the codec."""

import socket
from types import TracebackType
from typing import Any, Self

from ottla.codec.apis import APIS
from ottla.codec.frames import build_request, parse_response
from ottla.codec.wire import api
from tests.brokerlite.machine import NEWEST
from tests.patience import HUNG


class Peer:
    """A connection to a broker; every wait has a timeout."""

    def __init__(self, port: int, host: str = "127.0.0.1", timeout: float = HUNG, source: str = "") -> None:
        """``source``: the address from which it connects; empty: any."""
        self._socket = socket.create_connection((host, port), timeout, (source, 0))
        self._next = 0

    def write(self, data: bytes) -> None:
        self._socket.sendall(data)

    def send(self, message: Any, version: int | None = None) -> int:
        self._next += 1
        key = api(type(message)).key
        self.write(build_request(message, NEWEST[key] if version is None else version, self._next, "test"))
        return self._next

    def frame(self) -> bytes:
        """The next response, without its length; raises `EOFError` if the broker closed the connection instead."""
        size = int.from_bytes(self._exactly(4), "big")
        return self._exactly(size)

    def ask(self, message: Any, version: int | None = None) -> Any:
        sent = self.send(message, version)
        key = api(type(message)).key
        correlation_id, answer = parse_response(
            APIS[key].response, NEWEST[key] if version is None else version, self.frame()
        )
        assert correlation_id == sent
        return answer

    def closed(self) -> bool:
        """Whether the broker closes the connection without another byte, within the timeout."""
        try:
            return self._socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def close(self) -> None:
        self._socket.close()

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            if not (more := self._socket.recv(size - len(data))):
                raise EOFError
            data += more
        return data

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()
