"""The door: `parse` and `build` messages with whichever engine runs."""

from ottla.codec.wire import build, parse

__all__ = ["build", "parse"]
