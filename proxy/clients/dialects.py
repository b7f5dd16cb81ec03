"""What clients of different make are told where they cannot go on as they are.

Rules:
- The proxy refuses records for reasons that a broker has not. There is no error that has every client do the same, so
  they are told apart by the name and version that they give of themselves (KIP-511).
- A producer that is to be opened again: Java's client ends it for PRODUCER_FENCED. librdkafka would fail one record
  after the other for that; it ends its producer where a broker misses the very sequence that is next.
- A transaction that is to be aborted, and its producer to have another epoch: Java's client, and sarama, do that for
  OUT_OF_ORDER_SEQUENCE_NUMBER. It ends the producers of librdkafka, and of franz-go unless EndTxn gives the next epoch,
  which takes version 2 of transactions. Both abort for UNKNOWN_PRODUCER_ID, with which Java's client repeats the same
  records until they are too old.
- A client that does not say its name on a connection is taken for franz-go, which says it on the first to each node
  only: Java's client and librdkafka say theirs on each.

Source: rdkafka_request.c, rd_kafka_handle_idempotent_Produce_error; TransactionManager.java, canRetry; franz-go's
sink.go, handleReqRespBatch, and txn.go, maybeRecoverProducerID.
"""

from dataclasses import dataclass

from ottla.errors import OutOfOrderSequenceNumber, ProducerFenced, UnknownProducerId


@dataclass(frozen=True)
class Dialect:
    """What a client is told; without more, Java's.

    Attributes:
        reopen: ends its idempotent producer.
        abort: has it abort its transaction, and go on in another epoch.
    """

    reopen: int = ProducerFenced.code
    abort: int = OutOfOrderSequenceNumber.code

    def of(self, code: int, *, transactional: bool) -> int:
        """What the client is told where Java's would be told ``code``."""
        if transactional:
            return self.abort if code == OutOfOrderSequenceNumber.code else code
        return self.reopen if code == ProducerFenced.code else code


JAVA = Dialect()
LIBRDKAFKA = Dialect(reopen=OutOfOrderSequenceNumber.code, abort=UnknownProducerId.code)
FRANZ_GO = Dialect(abort=UnknownProducerId.code)
UNNAMED = FRANZ_GO


def dialect_of(name: str, version: str) -> Dialect:
    """That of a client by its software, as it calls it; what stands on librdkafka says so in its version."""
    if "rdkafka" in f"{name} {version}".lower():
        return LIBRDKAFKA
    return FRANZ_GO if name == "kgo" else JAVA
