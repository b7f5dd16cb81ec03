"""Fits the number of client connections to the limit of open files.

Rule: clients never get the last descriptors. The proxy needs some for upstream, new brokers and probes; a client that
is accepted without one for its upstream connection would only wait. The journal has its own from the start.
"""

import logging
import resource

from ottla.serve import spare

log = logging.getLogger("ottla.proxy")

OF_A_CLIENT = 3
"""Descriptors for one client: its connection, its connection to upstream, and one of its producer."""
OF_A_NEWCOMER = 2
"""The same for a client that is about to log in: it has not produced yet."""
OWN = 50
"""Descriptors for the proxy itself: files, ports, probes, and its own connection to upstream."""


def needed(connections: int) -> int:
    """The descriptors that a proxy with so many client connections needs."""
    return OWN + OF_A_CLIENT * connections + OF_A_NEWCOMER * spare(connections)


def fitting(connections: int) -> int:
    """The number of client connections for which there are descriptors, at most ``connections``; logs if it is less."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY or limit >= needed(connections):
        return connections
    room = limit - OWN
    fit = max((room - OF_A_NEWCOMER * spare(room // OF_A_CLIENT)) // OF_A_CLIENT, 1)
    log.warning(
        "limit of open files is too low for max-connections, the proxy accepts fewer",
        extra={"limit": limit, "needed": needed(connections), "max_connections": connections, "accepted": fit},
    )
    return fit
