"""What the proxy counts of the records that it buffers is what they take, whatever they are made of."""

from collections.abc import Callable

import pytest

from ottla.codec import records
from ottla.proxy.batches import rows_of
from ottla.proxy.produce import _size
from tests.codec.test_memory import SHAPES, batch_in, taken


@pytest.mark.parametrize("shape", SHAPES.values(), ids=list(SHAPES))
def test_what_is_counted_of_buffered_records_is_what_they_take(shape: Callable[[int], tuple[bytes, int]]) -> None:
    batch = batch_in(records, *shape(3000))

    def buffered() -> object:
        """As `Rewriter` keeps them: in a list for each destination, with a fingerprint of each."""
        rows = rows_of(batch.records())
        return list(rows), [hash(each) for each in rows]

    held, _ = taken(buffered)
    assert held < 1.02 * _size(rows_of(batch.records())) < 6 * held
