"""The broker, broken on purpose."""

from collections.abc import Callable
from contextlib import AbstractContextManager

MUTATIONS: dict[str, Callable[[], AbstractContextManager[None]]] = {}
SEEDS: dict[str, list[int]] = {}
