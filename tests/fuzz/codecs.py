"""Two copies of the codec in one process: one whose engine is Python, and one whose engine is C.

The engine is chosen when the codec is imported, and everything above the engines (record sets, frames, stored files,
dumps) uses that one. So the codec is imported twice, with different values of ``OTTLA_ENGINE``. Then both copies can
read the same bytes, with any part of the codec.

Rule: the copy in Python is imported first, because it must not load the extensions. They know only the copy that
existed when they were loaded.
"""

import contextlib
import importlib
import os
import pkgutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

PACKAGE = "ottla.codec"
ENGINES = ("python", "c")


@dataclass(frozen=True)
class Codec:
    """A copy of the codec.

    Attributes:
        engine: ``"python"`` or ``"c"``.
        modules: by their names below ``ottla.codec``, such as ``"apis.fetch"``.
        declared: every declared message and version, by a name such as ``"apis.fetch.FetchResponse 4"``.
    """

    engine: str
    modules: dict[str, Any]
    declared: dict[str, tuple[type[Any], int]] = field(default_factory=dict)

    def __getattr__(self, name: str) -> Any:
        return self.modules[name]


def load() -> tuple[Codec, Codec]:
    """Import both copies: the one in Python, then the one in C.

    Raises:
        ImportError: the extensions are not built, or the codec was imported before.
    """
    if PACKAGE in sys.modules:
        raise ImportError(f"{PACKAGE} is imported already, and only one copy can have the extensions")
    python, c = (_copy(engine) for engine in ENGINES)
    return python, c


def _copy(engine: str) -> Codec:
    for name in [each for each in sys.modules if each == PACKAGE or each.startswith(f"{PACKAGE}.")]:
        del sys.modules[name]
    with _environment(OTTLA_ENGINE=engine):
        package = importlib.import_module(PACKAGE)
        modules = dict(_modules(package))
        list(modules["apis"].APIS.values())  # imports the APIs now: later the lookup would import from the other copy
    codec = Codec(engine, modules)
    for name, module in sorted(modules.items()):
        for cls in vars(module).values():
            if hasattr(cls, "__api__") and cls.__module__ == module.__name__:
                versions = cls.__api__.versions
                for version in range(versions.low, versions.high + 1):
                    codec.declared[f"{name}.{cls.__name__} {version}"] = cls, version
    return codec


def _modules(package: ModuleType) -> Iterator[tuple[str, ModuleType]]:
    """Import and yield every module of the package but the engines in C: a later import could use the wrong copy."""
    for found in pkgutil.walk_packages(package.__path__, f"{PACKAGE}."):
        if not found.name.rpartition(".")[2].startswith("_") or found.name.endswith("_loops"):
            yield found.name.removeprefix(f"{PACKAGE}."), importlib.import_module(found.name)


@contextlib.contextmanager
def _environment(**values: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    yield
    for name, value in before.items():
        if value is None:
            del os.environ[name]
        else:
            os.environ[name] = value
