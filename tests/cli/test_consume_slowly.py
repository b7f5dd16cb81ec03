"""consume with a slow reader of its output."""

import select
import time

import pytest

import ottla
from ottla.testing import Broker
from tests.cli import program
from tests.patience import HUNG

pytestmark = pytest.mark.slow

RECORDS = 5000
VALUE = b"x" * 99  # 5000 lines are far more than a pipe holds


async def test_a_reader_that_is_slow_to_begin_gets_every_record_before_the_end(ottla_broker: Broker) -> None:
    ottla_broker.create_topic("t")
    async with ottla.connect(ottla_broker.bootstrap) as client, client.producer() as producer:
        for _ in range(RECORDS):
            await producer.send_soon("t", VALUE)
    with program.running("consume", "t", "--until-end", "--bootstrap", ottla_broker.bootstrap) as consume:
        assert consume.process.stdout is not None
        assert select.select([consume.process.stdout], [], [], HUNG)[0]
        time.sleep(1)  # the slowness under test: the pipe stays full
        code, err = consume.ended()
        assert (code, err) == (0, b"")
        assert consume.rest == (VALUE + b"\n") * RECORDS
