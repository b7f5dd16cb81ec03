"""The reader of offset ranges: what its errors say."""

import pytest

from ottla.errors import TimeoutExpired
from ottla.sdk.consume.reading.range_reader import OffsetRange, RangeReader
from ottla.sdk.options import Options
from tests.sim.world import ModelBroker, World


@pytest.mark.parametrize("pause", [0.0, 5.0])
def test_a_read_that_no_broker_answers_ends_with_the_ranges_it_waited_for(pause: float) -> None:
    world = World(ModelBroker({"t": 1}), breaks=1.0, options=Options(api_timeout=1.0))
    reading = RangeReader(world.core, [OffsetRange("t", 0, 0, 10)])
    assert reading.take() is None
    world.now += pause  # as if the process was stopped
    where = "t-0 at offset 0, wanted up to 10"
    with pytest.raises(TimeoutExpired, match=rf"^{where}: no records for 1 s \(.*:9001"):
        while True:
            world.run(reading.wait())
            assert reading.take() is None
    assert world.now <= max(1.0, pause), "not later than its limit"
