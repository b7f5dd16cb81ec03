"""What clients of different make are told where they cannot go on as they are.

Rules:
- The proxy refuses records for reasons that a broker has not. There is no error that has every client do the same, so
  they are told apart by the name and version that they give of themselves (KIP-511).
- A producer that is to be opened again: Java's client ends it for PRODUCER_FENCED. librdkafka would fail one record
  after the other for that; it ends its producer where a broker misses the very sequence that is next.
- A transaction that is to be aborted, and its producer to have another epoch: Java's client, and Go's, do that for
  OUT_OF_ORDER_SEQUENCE_NUMBER, where librdkafka ends its producer. That does it for UNKNOWN_PRODUCER_ID, with which
  Java's client repeats the same records until they are too old.

Source: rdkafka_request.c, rd_kafka_handle_idempotent_Produce_error; TransactionManager.java, canRetry; franz-go's
sink.go, handleReqRespBatch.
"""

from typing import Protocol

from ottla.errors import OutOfOrderSequenceNumber, ProducerFenced, UnknownProducerId


class Dialect(Protocol):
    """What a client is told in place of a code that means something else to it."""

    def __call__(self, code: int, *, transactional: bool) -> int: ...


def common(code: int, *, transactional: bool) -> int:
    """As Java's client takes it."""
    return code


def librdkafka(code: int, *, transactional: bool) -> int:
    if transactional:
        return UnknownProducerId.code if code == OutOfOrderSequenceNumber.code else code
    return OutOfOrderSequenceNumber.code if code == ProducerFenced.code else code


def dialect_of(name: str, version: str) -> Dialect:
    """That of a client by its software, as it calls it; what stands on librdkafka says so in its version."""
    return librdkafka if "rdkafka" in f"{name} {version}".lower() else common
