"""ottla on asyncio: like `of_ottla`, on uvloop."""

import uvloop

from tests.bench.clients import of_ottla
from tests.bench.clients.of_ottla_asyncio import Asyncio


class UvLoop(Asyncio):
    factory = staticmethod(uvloop.new_event_loop)


__getattr__ = of_ottla.on_loop(UvLoop())
