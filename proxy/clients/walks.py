"""Answers that are too long to be parsed: what has to be known of them is found by walking over them.

The answer about ten thousand topics would hold the event loop for a quarter of a second. Of those only the brokers are
of interest, which stand before them.

Source: MetadataResponse.json.
"""

from ottla.codec.apis.metadata import MetadataResponse
from ottla.codec.frames import build_response, parse_response
from ottla.codec.wire import Buffer, api
from ottla.errors import DecodeError

_HEAD_OF_RESPONSE = 4
_MOST_BROKERS = 100_000
"""With their tagged fields."""
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
