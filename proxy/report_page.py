"""Writes ``/report`` as JSON, in pieces.

Rules:
- Between two pieces, other tasks may run: a piece takes well below a millisecond.
"""

import json
from collections.abc import Iterator

from ottla.proxy.core import ProxyCore

HASHED = "shown as hashes, which stay the same until the proxy restarts"
SHOWN = "shown (report-keys)"


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
        known = core.cluster.topics.get(name)
        count = None if known is None else len(known.leaders)
        copied = {"copied_to": copies} if (copies := core.rules.copies(name)) else {}
        named = {"topic": name, "mode": None if mode is None else mode.value, "partitions_of_topic": count} | copied
        yield between + json.dumps(named | facts)[:-1] + ', "clients": ['
        between = ""
        for client in clients:
            yield between + json.dumps(client)
            between = ", "
        yield "]}"
        between = ", "
    yield "]}\n"
