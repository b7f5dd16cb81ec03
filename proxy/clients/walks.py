"""Reads only the brokers of long Metadata responses, by skipping over the bytes.

Parsing a response with ten thousand topics would block the event loop for a quarter of a second. The proxy needs only
the brokers, which come before the topics.

Source: MetadataResponse.json.
"""

from ottla.codec.apis.metadata import MetadataResponse
from ottla.codec.frames import build_response, parse_response
from ottla.codec.wire import Buffer, api
from ottla.errors import DecodeError

_HEAD_OF_RESPONSE = 4
_MOST_BROKERS = 100_000
"""The most brokers, counting their tagged fields."""
_THROTTLE_SINCE = 3
_RACK_SINCE = 1


class _TooMany(Exception):
    pass


class _Walk:
    """Skips over encoded fields; ``most`` bounds the elements of all arrays together."""

    def __init__(self, data: memoryview, at: int, *, flexible: bool, most: int) -> None:
        self._data, self.at, self._flexible, self._left = data, at, flexible, most

    def skip(self, size: int) -> None:
        self.at += max(size, 0)

    def string(self) -> None:
        self.skip(self._varint() - 1 if self._flexible else self._number(2))

    def array(self) -> range:
        return self._elements(self._varint() - 1 if self._flexible else self._number(4))

    def tags(self) -> None:
        for _ in self._elements(self._varint() if self._flexible else 0):
            self._varint()
            self.skip(self._varint())

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


class LongMetadata:
    """The frame of a Metadata response whose topics are not parsed.

    Attributes:
        answer: the response without topics.

    Raises:
        DecodeError: the bytes before the topics are not a valid response.
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
            raise DecodeError("the brokers are cut off or too many", MetadataResponse.__name__, walk.at) from None
        # The end of a response without topics: appended to the brokers' bytes it makes a response that can be parsed.
        nothing = build_response(MetadataResponse(brokers=(), topics=()), version, 0)
        before = 4 + _HEAD_OF_RESPONSE + (4 if version >= _THROTTLE_SINCE else 0)
        self._behind = nothing[before + (2 if flexible else 4) :]
        self._rest, self._version = data[walk.at :], version
        self._correlation_id, self.answer = parse_response(
            MetadataResponse, version, b"".join((data[: walk.at], self._behind))
        )

    def parts(self, answer: MetadataResponse) -> tuple[Buffer, ...]:
        """The frame in parts; ``answer``, without topics, stands in front of the topics."""
        head = build_response(answer, self._version, self._correlation_id)[4 : -len(self._behind)]
        return head, self._rest
