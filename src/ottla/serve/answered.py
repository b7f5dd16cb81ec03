"""Calls the observers of a listener for each request: when it is answered, or when its connection ends.

Rules:
- A listener without observers reads no field of a request for this, and takes no time.
- Observers see neither key, version nor client id of a frame that is no request. A client may send a SASL token without
  a header where no token is due, for example because it takes a listener for another one. Its bytes in these places are
  then a part of a password, or a whole JWT.

Limit: a token of PLAIN passes for a request if its user is one character, which stands for an API, and its password
begins with a control character, which stands for a version of this API. Observers then see that character, and the
password from its eighth byte on.
"""

import functools
import time
from collections.abc import Callable
from typing import NamedTuple

from ottla.client_info import ClientInfo
from ottla.codec import frames
from ottla.codec.apis import APIS, NAMES
from ottla.codec.wire import Buffer, api

_HEAD = 10
"""Bytes of a request up to the length of its client id: key, version, correlation id."""


class AnsweredRequest(NamedTuple):
    """A request and its response.

    Attributes:
        client: the client's connection.
        key, version: of the API; -1 if the frame is no request of Kafka's, or of a version unknown to the codec.
        client_id: from the header; ``None``: it has none, or key and version are -1.
        size: bytes of the request, without its length field.
        response: bytes of the response with its length field, 0 if it has none (``acks=0``); ``None``: the connection
            ended before.
        errors: the error codes in the response, as far as the server knows them.
        at: nanoseconds since 1970 when the request was answered.
        seconds: from the request to its response.
    """

    client: ClientInfo
    key: int
    version: int
    client_id: str | None
    size: int
    response: int | None
    errors: tuple[int, ...]
    at: int
    seconds: float


RequestObserver = Callable[[AnsweredRequest], None]
"""Called in the loop for each request; it must not block."""


class ObservedRequest:
    """A request that waits for its response, and its observers.

    Args:
        frame: its beginning, with the client id if it has one; or all of its ``size`` bytes.
    """

    __slots__ = ("_began", "_client", "_head", "_size")

    def __init__(self, client: ClientInfo, frame: Buffer, size: int) -> None:
        self._client, self._began = client, time.perf_counter()
        # Copied, because the memory of the frame is reused. A client id has at most two bytes of length.
        named = max(int.from_bytes(frame[8:_HEAD], "big", signed=True), 0)
        self._head, self._size = bytes(frame[: _HEAD + named]), size

    def answered(self, observers: tuple[RequestObserver, ...], response: int | None, errors: tuple[int, ...]) -> None:
        """Call the observers that there are now."""
        head = self._head
        key, version = (int.from_bytes(head[at : at + 2], "big", signed=True) for at in (0, 2))
        client_id = None
        if len(head) < _HEAD or not _is_request(key, version):
            key = version = -1
        elif head[8] < 0x80:  # otherwise it is null
            client_id = head[_HEAD:].decode(errors="replace")
        seconds, at = time.perf_counter() - self._began, time.time_ns()
        request = AnsweredRequest(self._client, key, version, client_id, self._size, response, errors, at, seconds)
        for observer in observers:
            observer(request)


def _is_request(key: int, version: int) -> bool:
    """Whether a frame begins as requests do, and hardly a SASL token does.

    PLAIN's begins with a null byte and a user; after a user of one character comes the password.
    """
    if key == frames.API_VERSIONS:  # of which newer clients send newer versions, to ask for the server's
        return 0 <= version < frames.MOST_VERSIONS
    return key in NAMES and 0 <= version <= _newest(key)


@functools.cache
def _newest(key: int) -> int:
    return api(APIS[key].request).versions.high
