"""Writes ``/report`` as JSON, in pieces.

Rules:
- Between two pieces, other tasks may run: a piece takes well below a millisecond.
"""

import json
from collections.abc import Iterator

from ottla.proxy.core import ProxyCore

HASHED = "hashed: BLAKE2b, 64 bits, with a secret of this process, so that equal keys are equal until it restarts"
SHOWN = "shown, by report-keys"


def report(core: ProxyCore, seconds: float) -> Iterator[str]:
    """Yield the JSON of the report.

    Args:
        seconds: for how long the proxy has run.
    """
    found, config = core.key_report, core.config
    assert found is not None, "the report is served only if it is collected"
    head = {
        "seconds": round(seconds, 1),
        "keys": SHOWN if found.shows_keys else HASHED,
        "observe_sample": config.observe_sample,
    }
    yield json.dumps(head)[:-1] + ', "topics": ['
    between = ""
    for name, facts, clients in found.topics():
        mode = core.rules.mode(name)
        named = {"topic": name, "mode": None if mode is None else mode.value}
        yield between + json.dumps(named | facts)[:-1] + ', "clients": ['
        between = ""
        for client in clients:
            yield between + json.dumps(client)
            between = ", "
        yield "]}"
        between = ", "
    yield "]}\n"
