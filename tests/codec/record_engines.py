"""`ottla.codec.records` with each engine, side by side in one process."""

import importlib
import importlib.util
import sys
from types import ModuleType
from typing import Any

import ottla.codec.records
from ottla.codec import _engine, _loops

_MODULES = ("ottla.codec.columns", "ottla.codec.records")


def _with(engine: str) -> Any:
    """`ottla.codec.records` as it is with ``engine``."""
    chosen, loaded = _engine.ENGINE, {name: sys.modules.pop(name) for name in _MODULES}
    _engine.ENGINE = engine  # type: ignore[assignment] # one of two names, which LOOPS has as strings
    try:
        return importlib.import_module("ottla.codec.records")
    finally:
        _engine.ENGINE = chosen
        sys.modules.update(loaded)
        for name, module in loaded.items():
            setattr(ottla.codec, name.rpartition(".")[2], module)


LOOPS: dict[str, ModuleType] = {"python": _loops}
"""The loops themselves; the extension's only if it is built."""
if importlib.util.find_spec("ottla.codec._records"):
    LOOPS["c"] = importlib.import_module("ottla.codec._records")

RECORDS: dict[str, Any] = {engine: _with(engine) for engine in LOOPS}
