"""The codec's engines, for tests that hold for each of them.

"construct" interprets the trees and is the reference. The others are machines, which must agree with each other down to
the wording of an error.
"""

import importlib
import importlib.util
from typing import Any, Protocol

from ottla.codec import machine, reference
from ottla.codec.wire import Buffer


class Engine(Protocol):
    """A module with the engine's two functions."""

    def parse(self, cls: type[Any], version: int, data: Buffer, offset: int = 0) -> tuple[Any, int]: ...

    def build(self, value: Any, version: int) -> bytes: ...


ENGINES: dict[str, Engine] = {"construct": reference, "python": machine}
if importlib.util.find_spec("ottla.codec._machine"):
    ENGINES["c"] = importlib.import_module("ottla.codec._machine")
