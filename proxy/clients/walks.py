"""Requests and answers that are too long to be parsed: what has to be known of them is found by walking over them.

- Each topic and each record set of a Produce request takes some work, however small it is: one of 16 MB that names a
  million would hold the event loop for half a minute. So do the names of other requests that the proxy reads, and of
  their answers: 1 MiB of FindCoordinator may name half a million groups, and would hold the loop for five seconds.
- The answer about ten thousand topics would hold it for a quarter of a second. Of those only the brokers are of
  interest, which stand before them.

Source: ProduceRequest.json, FindCoordinatorRequest.json, AddPartitionsToTxnRequest.json, MetadataResponse.json.
"""

from collections.abc import Callable

from ottla.codec.apis import APIS
from ottla.codec.apis.metadata import MetadataResponse
from ottla.codec.frames import build_response, parse_response
from ottla.codec.wire import Buffer, api
from ottla.errors import DecodeError
from ottla.proxy.clients.carried import ADD_PARTITIONS_TO_TXN, FIND_COORDINATOR, PRODUCE

_HEAD_OF_REQUEST, _HEAD_OF_RESPONSE = 8, 4
_MOST_BROKERS = 100_000
"""With their tagged fields."""
_TRANSACTIONAL_ID_SINCE = 3
_KEYS_SINCE = 4
_THROTTLE_SINCE = 3
_RACK_SINCE = 1


class _TooMany(Exception):
    pass


class _Walk:
    """Goes over bytes from one length to the next; ``most`` are the elements of arrays that it passes, all together."""

    def __init__(self, data: memoryview, at: int, *, flexible: bool, most: int) -> None:
        self._data, self.at, self._flexible, self._left = data, at, flexible, most

    def skip(self, size: int) -> None:
        self.at += max(size, 0)

    def string(self) -> None:
        self.skip(self._varint() - 1 if self._flexible else self._number(2))

    def bytes(self) -> None:
        self.skip(self._varint() - 1 if self._flexible else self._number(4))

    def array(self) -> range:
        return self._elements(self._varint() - 1 if self._flexible else self._number(4))

    def tags(self) -> None:
        for _ in self._elements(self._varint() if self._flexible else 0):
            self._varint()
            self.skip(self._varint())

    def plain_string(self) -> None:
        """One that has the same length in every version."""
        self.skip(self._number(2))

    def _elements(self, count: int) -> range:
        self._left -= max(count, 0)
        if self._left < 0:
            raise _TooMany
        return range(count)

    def _number(self, size: int) -> int:
        self.at += size
        if self.at > len(self._data):
            raise IndexError
        return int.from_bytes(self._data[self.at - size : self.at], "big", signed=True)

    def _varint(self) -> int:
        value = 0
        for shift in range(0, 35, 7):
            byte = self._data[self.at]
            self.at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise IndexError


def _produce(walk: _Walk, version: int) -> None:
    if version >= _TRANSACTIONAL_ID_SINCE:
        walk.string()
    walk.skip(2 + 4)  # acks, the timeout
    for _ in walk.array():
        walk.string()
        for _ in walk.array():
            walk.skip(4)
            walk.bytes()
            walk.tags()
        walk.tags()


def _find_coordinator(walk: _Walk, version: int) -> None:
    if version < _KEYS_SINCE:
        walk.string()
    walk.skip(1)  # the type of the keys
    for _ in walk.array() if version >= _KEYS_SINCE else ():
        walk.string()


def _add_partitions(walk: _Walk, version: int) -> None:
    walk.string()
    walk.skip(8 + 2)  # the producer's id and epoch
    for _ in walk.array():
        walk.string()
        walk.skip(4 * len(walk.array()))
        walk.tags()


_BODIES: dict[int, Callable[[_Walk, int], None]] = {
    PRODUCE: _produce,
    FIND_COORDINATOR: _find_coordinator,
    ADD_PARTITIONS_TO_TXN: _add_partitions,
}


def has_too_many_parts(frame: Buffer, most: int) -> bool:
    """Whether a request names more than ``most`` topics, partitions or groups, tagged fields among them.

    What breaks off, or makes no sense, is for the parser to refuse, as are requests of other APIs.
    """
    key, version = (int.from_bytes(frame[at : at + 2], "big") for at in (0, 2))
    if key not in _BODIES:
        return False
    flexible = version in api(APIS[key].request).flexible
    walk = _Walk(memoryview(frame), _HEAD_OF_REQUEST, flexible=flexible, most=most)
    try:
        walk.plain_string()  # the client id
        walk.tags()
        _BODIES[key](walk, version)
        walk.tags()
    except IndexError:
        return False
    except _TooMany:
        return True
    return False


class LongMetadata:
    """A frame with an answer to Metadata, the topics of which are not parsed.

    Attributes:
        answer: the answer without topics; its brokers may be changed.

    Raises:
        DecodeError: the bytes are no such answer, as far as they were looked at.
    """

    def __init__(self, frame: Buffer, version: int) -> None:
        flexible = version in api(MetadataResponse).flexible
        data = memoryview(frame)
        walk = _Walk(data, _HEAD_OF_RESPONSE, flexible=flexible, most=_MOST_BROKERS)
        try:
            walk.tags()
            walk.skip(4 if version >= _THROTTLE_SINCE else 0)
            for _ in walk.array():
                walk.skip(4)
                walk.string()
                walk.skip(4)
                if version >= _RACK_SINCE:
                    walk.string()
                walk.tags()
        except (IndexError, _TooMany):
            raise DecodeError("the brokers break off, or are too many", MetadataResponse.__name__, walk.at) from None
        # What stands behind the brokers where there are no topics: with that the head is an answer, which is parsed.
        nothing = build_response(MetadataResponse(brokers=(), topics=()), version, 0)
        before = 4 + _HEAD_OF_RESPONSE + (4 if version >= _THROTTLE_SINCE else 0)
        self._behind = nothing[before + (2 if flexible else 4) :]
        self._rest, self._version = data[walk.at :], version
        self._correlation_id, self.answer = parse_response(
            MetadataResponse, version, b"".join((data[: walk.at], self._behind))
        )

    def parts(self) -> tuple[Buffer, ...]:
        """The frame, in parts, with the brokers of `answer`."""
        head = build_response(self.answer, self._version, self._correlation_id)[4 : -len(self._behind)]
        return head, self._rest
