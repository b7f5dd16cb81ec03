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

from typing import NamedTuple

from ottla.errors import BrokerError, OutOfOrderSequenceNumber, ProducerFenced, UnknownProducerId


class Dialect(NamedTuple):
    """Errors that mean to a client what it has to do."""

    open_again: type[BrokerError]
    """The producer can store nothing more; its application has to open another."""
    abort: type[BrokerError]
    """Of records of a transaction: abort it, and go on in the next epoch."""


COMMON = Dialect(ProducerFenced, OutOfOrderSequenceNumber)
LIBRDKAFKA = Dialect(OutOfOrderSequenceNumber, UnknownProducerId)


def dialect_of(name: str, version: str) -> Dialect:
    """That of a client by its software, as it calls it; what stands on librdkafka says so in its version."""
    return LIBRDKAFKA if "rdkafka" in f"{name} {version}".lower() else COMMON
