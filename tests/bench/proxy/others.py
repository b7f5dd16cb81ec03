"""Other proxies of Kafka, each in a process of its own in front of one broker: kafka-proxy and kroxylicious.

They pass requests and responses on, and replace the addresses of brokers. Both are built from their sources; this
machine has those that are found on the PATH, as ``kafka-proxy`` and ``kroxylicious``.
"""

import contextlib
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from tests import kafka
from tests.bench.proxy.run import program, proxy

Running = contextlib.AbstractContextManager[tuple[int, int]]
"""A proxy that runs: its port, and its process id."""


def _kafka_proxy(path: str, upstream: str, home: Path) -> Running:
    [port] = kafka.free_ports(1)
    mapping = f"{upstream},{kafka.HOST}:{port}"
    options = ("--default-listener-ip", kafka.HOST, "--http-disable", "--log-level", "warning")
    return program(home, port, path, "server", "--bootstrap-server-mapping", mapping, *options)


def _kroxylicious(path: str, upstream: str, home: Path) -> Running:
    first = kafka.free_ports(1)[0]
    config = home / "kroxylicious.json"
    nodes = {"name": "all", "start": 0, "end": 3}
    gateway = {
        "name": "default",
        "portIdentifiesNode": {"bootstrapAddress": f"{kafka.HOST}:{first}", "nodeIdRanges": [nodes]},
    }
    cluster = {"name": "bench", "targetCluster": {"bootstrapServers": upstream}, "gateways": [gateway]}
    config.write_text(json.dumps({"virtualClusters": [cluster]}))
    return program(home, first, path, "--config", str(config))


OTHERS: dict[str, Callable[[str, str, Path], Running]] = {"kafka-proxy": _kafka_proxy, "kroxylicious": _kroxylicious}


def available(upstream: str, home: Path) -> Iterator[tuple[str, Running]]:
    """Our proxy, which passes everything on, and the others that this machine has."""
    yield "ottla", proxy(upstream, home)
    for name, start in OTHERS.items():
        if path := shutil.which(name):
            yield name, start(path, upstream, home)
