"""The threads of zeroconf in this process."""

import threading


def loops() -> list[str]:
    """The names of the threads that run an event loop of zeroconf."""
    return [each.name for each in threading.enumerate() if "(_run_loop)" in each.name]
