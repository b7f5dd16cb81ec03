"""The client's consume-transform-produce, broken on purpose; see `tests.sim.mutations`."""

from collections.abc import Callable
from contextlib import AbstractContextManager

MUTATIONS: dict[str, Callable[[], AbstractContextManager[None]]] = {}
SEEDS: dict[str, list[int]] = {}
