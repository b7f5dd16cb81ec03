"""ottla on asyncio: as `of_ottla`, on uvloop."""

from functools import partial

import uvloop

from tests.bench.clients import of_ottla
from tests.bench.clients.of_ottla_asyncio import Asyncio


class UvLoop(Asyncio):
    factory = staticmethod(uvloop.new_event_loop)


ON = UvLoop()

consume = partial(of_ottla.consume, on=ON)
consume_columns = partial(of_ottla.consume_columns, on=ON)
produce = partial(of_ottla.produce, on=ON)
produce_many = partial(of_ottla.produce_many, on=ON)
receipts = partial(of_ottla.receipts, on=ON)
receipts_many = partial(of_ottla.receipts_many, on=ON)
paced = partial(of_ottla.paced, on=ON)
awaited = partial(of_ottla.awaited, on=ON)
