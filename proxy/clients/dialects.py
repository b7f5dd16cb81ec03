"""Chooses the error code for each kind of client if its producer must be reopened, or its transaction aborted.

Rules:
- The proxy refuses records for reasons that a broker does not have. No error code has the same effect on all clients,
  so the proxy distinguishes them by the software name and version in ApiVersions (KIP-511).
- To have an idempotent producer reopened: PRODUCER_FENCED ends the producer of Java's client. librdkafka would fail one
  record after the other; it ends its producer for OUT_OF_ORDER_SEQUENCE_NUMBER for the batch that is next.
- To have a transaction aborted and the epoch bumped: Java's client and sarama do that for OUT_OF_ORDER_SEQUENCE_NUMBER.
  The same code ends the producers of librdkafka, and those of franz-go unless EndTxn returns the next epoch, which
  needs transactions of version 2. Both abort for UNKNOWN_PRODUCER_ID, but for that Java's client retries the same
  records until they expire.
- A client without a software name on its connection is taken for franz-go, which sends it only on its first connection
  to each broker. Java's client and librdkafka send theirs on each connection.

Source: rdkafka_request.c, rd_kafka_handle_idempotent_Produce_error; TransactionManager.java, canRetry; franz-go's
sink.go, handleReqRespBatch, and txn.go, maybeRecoverProducerID.
"""

from dataclasses import dataclass

from ottla.errors import OutOfOrderSequenceNumber, ProducerFenced, UnknownProducerId


@dataclass(frozen=True)
class Dialect:
    """The error codes for one kind of client; the defaults are for Java's.

    Attributes:
        reopen: ends the idempotent producer.
        abort: has the client abort its transaction and bump the epoch.
    """

    reopen: int = ProducerFenced.code
    abort: int = OutOfOrderSequenceNumber.code

    def of(self, code: int, *, transactional: bool) -> int:
        """The code for this client where Java's client would get ``code``."""
        if transactional:
            return self.abort if code == OutOfOrderSequenceNumber.code else code
        return self.reopen if code == ProducerFenced.code else code


JAVA = Dialect()
LIBRDKAFKA = Dialect(reopen=OutOfOrderSequenceNumber.code, abort=UnknownProducerId.code)
FRANZ_GO = Dialect(abort=UnknownProducerId.code)
UNNAMED = FRANZ_GO


def dialect_of(name: str, version: str) -> Dialect:
    """The dialect of a client by its software name and version; wrappers of librdkafka name it in their version."""
    if "rdkafka" in f"{name} {version}".lower():
        return LIBRDKAFKA
    return FRANZ_GO if name == "kgo" else JAVA
