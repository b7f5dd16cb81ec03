"""A connection to a broker with one request at a time, built only on the codec."""

import socket
from typing import Any

from ottla.codec import frames
from tests.patience import HUNG


class Peer:
    """Blocks; raises an `OSError` if the broker does not answer."""

    def __init__(self, port: int, host: str = "127.0.0.1", timeout: float = HUNG) -> None:
        self._socket = socket.create_connection((host, port), timeout=timeout)
        self._stream = self._socket.makefile("rb")

    def ask(self, message: Any, version: int, response: type[Any], answered: int | None = None) -> Any:
        """The response, which has version ``answered`` if it differs from the request's version."""
        self._socket.sendall(frames.build_request(message, version, 7, "test"))
        size = int.from_bytes(self._read(4), "big")
        correlation_id, answer = frames.parse_response(
            response, version if answered is None else answered, self._read(size)
        )
        assert correlation_id == 7
        return answer

    def _read(self, size: int) -> bytes:
        data = self._stream.read(size)
        if len(data) < size:
            raise ConnectionResetError("the broker closed the connection")
        return data

    def close(self) -> None:
        self._stream.close()
        self._socket.close()
