"""Reads only the beginning of long messages, by skipping over the bytes.

- `LongMetadata` reads the brokers of Metadata responses, which come before the topics. Parsing a response with ten
  thousand topics would block the event loop for a quarter of a second.
- `ProduceHead` reads the fields of a Produce request before its records, most of which may not have arrived yet.
- `with_shorter_wait` changes one field of a Fetch or ShareFetch request, which may name thousands of partitions.

Source: MetadataResponse.json, ProduceRequest.json, FetchRequest.json, RequestHeader.json.
"""

from typing import NamedTuple

from ottla.codec.apis.fetch import FetchRequest
from ottla.codec.apis.metadata import MetadataResponse
from ottla.codec.apis.produce import ProduceRequest
from ottla.codec.apis.share_fetch import ShareFetchRequest
from ottla.codec.frames import build_response, parse_response
from ottla.codec.wire import Buffer, api
from ottla.errors import DecodeError, RemoteProtocolError
from ottla.proxy.clients.carried import SHARE_FETCH

_HEAD_OF_RESPONSE = 4
_MOST_BROKERS = 100_000
"""The most brokers, counting their tagged fields."""
_MOST_TAGS = 100
"""The most tagged fields, topics and partitions in the beginning of a Produce request."""
_THROTTLE_SINCE = 3
_RACK_SINCE = 1


class TooMany(Exception):
    pass


class Walk:
    """Skips over encoded fields; ``most`` bounds the elements of all arrays together."""

    def __init__(self, data: memoryview, at: int, *, flexible: bool, most: int) -> None:
        self._data, self.at, self._flexible, self._left = data, at, flexible, most

    def skip(self, size: int) -> None:
        self.at += max(size, 0)

    def string(self) -> None:
        self.skip(self.varint() - 1 if self._flexible else self.number(2))

    def text(self, *, legacy: bool = False) -> str | None:
        """A string that may be null; with ``legacy``, its length is not compact in flexible versions either."""
        size = self.varint() - 1 if self._flexible and not legacy else self.number(2)
        if size < 0:
            return None
        self.at += size
        if self.at > len(self._data):
            raise IndexError
        return str(self._data[self.at - size : self.at], "utf-8")

    def bytes(self) -> int:
        """The size of a field of bytes; negative if it is null."""
        return self.varint() - 1 if self._flexible else self.number(4)

    def array(self) -> range:
        return self._elements(self.varint() - 1 if self._flexible else self.number(4))

    def tags(self) -> None:
        for _ in self._elements(self.varint() if self._flexible else 0):
            self.varint()
            self.skip(self.varint())

    def _elements(self, count: int) -> range:
        self._left -= max(count, 0)
        if self._left < 0:
            raise TooMany
        return range(count)

    def number(self, size: int) -> int:
        self.at += size
        if self.at > len(self._data):
            raise IndexError
        return int.from_bytes(self._data[self.at - size : self.at], "big", signed=True)

    def varint(self) -> int:
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
        walk = Walk(data, _HEAD_OF_RESPONSE, flexible=flexible, most=_MOST_BROKERS)
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
        except (IndexError, TooMany):
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


class ProduceHead(NamedTuple):
    """The beginning of a Produce request with records for one partition only.

    Attributes:
        data: the beginning of the record set.
        size: bytes of the whole record set.
    """

    version: int
    client_id: str | None
    transactional_id: str | None
    acks: int
    topic: str
    partition: int
    data: memoryview
    size: int


_TRANSACTIONS_SINCE = 3
_NO_REPLICA_SINCE = 15
"""The first version of Fetch that does not begin with the id of a replica."""


def produce_head(start: Buffer, size: int) -> ProduceHead | None:
    """Read the beginning of a Produce request of ``size`` bytes; ``None`` if it has several partitions, or is invalid
    or too short: then the whole request has to be read.

    Args:
        start: at least its first 8 bytes.
    """
    data = memoryview(start)
    version = int.from_bytes(data[2:4], "big", signed=True)
    walk = Walk(data, 8, flexible=version in api(ProduceRequest).flexible, most=_MOST_TAGS)
    try:
        client_id = walk.text(legacy=True)
        walk.tags()
        transactional_id = walk.text() if version >= _TRANSACTIONS_SINCE else None
        acks = walk.number(2)
        walk.skip(4)
        if len(walk.array()) != 1:
            return None
        topic = walk.text()
        if topic is None or len(walk.array()) != 1:
            return None
        partition, length = walk.number(4), walk.bytes()
    except (IndexError, TooMany, UnicodeDecodeError):
        return None
    if not 0 < length <= size - walk.at:
        return None
    records = data[walk.at : walk.at + length]
    return ProduceHead(version, client_id, transactional_id, acks, topic, partition, records, length)


def with_shorter_wait(frame: Buffer, most: int) -> Buffer:
    """A Fetch or ShareFetch request whose `max_wait_ms` is at most ``most``; an unreadable one stays as it is.

    Raises:
        RemoteProtocolError: it has more tagged fields than any client sends.
    """
    data = memoryview(frame)
    version = int.from_bytes(data[2:4], "big", signed=True)
    shared = int.from_bytes(data[:2], "big") == SHARE_FETCH
    flexible = version in api(ShareFetchRequest if shared else FetchRequest).flexible
    walk = Walk(data, 8, flexible=flexible, most=_MOST_TAGS)
    try:
        walk.skip(walk.number(2))
        walk.tags()
        if shared:
            walk.text()
            walk.text()
        walk.skip(0 if version >= _NO_REPLICA_SINCE and not shared else 4)
        wait = walk.number(4)
    except (IndexError, UnicodeDecodeError):
        return frame
    except TooMany as error:
        raise RemoteProtocolError(f"a request with more than {_MOST_TAGS} tagged fields in its header") from error
    if wait <= most:
        return frame
    return b"".join((data[: walk.at - 4], most.to_bytes(4, "big"), data[walk.at :]))
