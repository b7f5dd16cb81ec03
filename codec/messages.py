"""The access point to `parse` and `build`, in whichever engine runs.

Both behave as those of `reference.py`, which the tests compare each engine with.
"""

from typing import TYPE_CHECKING

from ottla.codec._engine import ENGINE

if TYPE_CHECKING or ENGINE == "python":
    from ottla.codec.machine import build, build_parts, parse
else:
    from ottla.codec._machine import build, build_parts, parse

__all__ = ["build", "build_parts", "parse"]
