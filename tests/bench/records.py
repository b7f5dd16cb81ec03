"""Record batches: ours against aiokafka's C extension, CRC included on both sides."""

from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from ottla.codec.records import BatchBuilder, read_batches
from tests.bench.case import Case

COUNT = 500
REPEAT = 20
KEYS = [b"key-%012d" % number for number in range(COUNT)]
VALUE = b"v" * 100
NOW = 1_700_000_000_000


def _append_ours() -> bytes:
    builder = BatchBuilder()
    for key in KEYS:
        builder.append(NOW, key, VALUE)
    return builder.build()


def _append_theirs() -> bytes:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=0,
        is_transactional=False,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 20,
    )
    for offset, key in enumerate(KEYS):
        builder.append(offset, NOW, key, VALUE, [])
    return bytes(builder.build())


BATCH = _append_ours()


def encode_ours() -> int:
    for _ in range(REPEAT):
        _append_ours()
    return COUNT * REPEAT


def encode_theirs() -> int:
    for _ in range(REPEAT):
        _append_theirs()
    return COUNT * REPEAT


def decode_ours() -> int:
    return sum(len(batch.records()) for _ in range(REPEAT) for batch in read_batches(BATCH))


def decode_columns() -> int:
    return sum(len(batch.columns().values) for _ in range(REPEAT) for batch in read_batches(BATCH))


def decode_theirs() -> int:
    handled = 0
    for _ in range(REPEAT):
        batch = DefaultRecordBatch(BATCH)
        assert batch.validate_crc()
        handled += len(list(batch))
    return handled


PEER = "aiokafka, C"
CASES = [
    Case(name="encode records of 16 + 100 bytes", peer=PEER, ours=encode_ours, theirs=encode_theirs),
    Case(name="decode records of 16 + 100 bytes", peer=PEER, ours=decode_ours, theirs=decode_theirs),
    Case(name="decode them as columns", peer=PEER, ours=decode_columns, theirs=decode_theirs),
]
