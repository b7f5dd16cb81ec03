"""`ottla broker` and `ottla proxy`: servers that run until stopped.

Rules:
- One line on stdout says that the server accepts connections, and where; everything after that is logs on stderr.
- SIGHUP and ``POST /reload`` read the file of ``--config`` again (`reloading.py`). Without that file SIGHUP drains.
- SIGTERM and Ctrl-C drain: the server accepts no more connections, answers all requests, and closes the data
  folder cleanly.
"""

import ctypes
import gc
import json
import logging
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol, TypeVar

import typer

from ottla.brokerlite.config import Sync
from ottla.cli import command_config, exits, stdio
from ottla.cli.logs import LogFormat, LogLevel
from ottla.cli.reloading import Configuration, ServerLogs, log_warnings, server_logs
from ottla.config_file import NO_FILE, ConfigFile, dashed
from ottla.errors import ConfigurationError

if TYPE_CHECKING:
    import trio

    from ottla.proxy.config import ProxyConfig

log = logging.getLogger("ottla.cli")

C = TypeVar("C")

_DESCRIPTORS = 10_240
"""The most that macOS allows; a broker keeps some 4,000 files open, and 2,000 connections."""
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""Parameters of glibc's ``mallopt``."""
_MB = 2**20

BROKER_EXAMPLE = "Example: ottla broker --listen 127.0.0.1:9092 --data ./kafka-data"
PROXY_EXAMPLE = "Example: ottla proxy --upstream localhost:9092 --listen 127.0.0.1:19092 --topic 'flights=rewrite'"

Advertise = Annotated[
    str | None, typer.Option("--advertise", metavar="HOST[:PORT]", help="The address that clients get from metadata.")
]
Health = Annotated[
    str | None, typer.Option("--health", metavar="HOST:PORT", help="Serve GET /health, /ready and /metrics here.")
]
AccessLog = Annotated[
    str | None,
    typer.Option(
        "--access-log", metavar="FILE", help="Append a line of JSON for each request; true: write them to stderr."
    ),
]
Announce = Annotated[bool, typer.Option("--announce", help="Announce the address, so that zeroconf://NAME finds it.")]
Name = Annotated[str | None, typer.Option("--name", help="The name to announce; default: MACHINE-PORT.")]
ServerFormat = Annotated[
    LogFormat | None, typer.Option("--log-format", help="The format of log lines on stderr (text).")
]
ServerLevel = Annotated[
    LogLevel | None, typer.Option("--log-level", help="The lowest level of log lines to print (info).")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the line about the listening address as JSON.")]


class RunningServer(Protocol):
    """The object that `run_broker` and `run_proxy` report once they listen."""

    bootstrap: str
    health: str | None

    def drain(self) -> None: ...


Server = Callable[["trio.TaskStatus[Any]"], Awaitable[None]]
"""Runs until drained or cancelled; reports its `RunningServer`."""


def _folder(text: str) -> Path:
    # To pathlib an empty path is the current folder; here it is more likely an unset variable of a script.
    if not text:
        raise typer.BadParameter("is empty; write . for the current folder")
    return Path(text)


def broker(
    listen: Annotated[
        str | None,
        typer.Option(
            "--listen",
            metavar="HOST:PORT",
            help="The address for clients; port 0: any free port; default: 127.0.0.1:9092.",
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="A TOML or properties file with these options, or with the names of server.properties."
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            metavar="DIR",
            parser=_folder,
            help="The folder of the topics; without it, topics are deleted when the broker stops.",
        ),
    ] = None,
    advertise: Advertise = None,
    node_id: Annotated[int | None, typer.Option(min=0, max=2**31 - 1, help="Kafka's node.id; default: 1.")] = None,
    partitions: Annotated[
        int | None,
        typer.Option(
            min=1, max=10_000, help="The number of partitions of topics that are created without one; default: 1."
        ),
    ] = None,
    auto_create: Annotated[
        bool | None, typer.Option(help="Create a topic when a client asks for it; default: yes.")
    ] = None,
    group_delay: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            min=0.0,
            max=300.0,
            help="How long the first member of an empty group waits for others; default: 0.5.",
        ),
    ] = None,
    sync: Annotated[
        Sync | None,
        typer.Option(
            help="When records are synced to the disk: before they are acknowledged (always), when a segment is full "
            "and at the end (segment), or never; default: segment."
        ),
    ] = None,
    acls: Annotated[
        bool | None, typer.Option("--acls/--no-acls", help="Apply ACLs, which say who may do what (no).")
    ] = None,
    super_user: Annotated[
        list[str] | None,
        typer.Option(metavar="User:NAME", help="With --acls: a principal that may do everything. May be repeated."),
    ] = None,
    allow_if_no_acl: Annotated[
        bool | None,
        typer.Option(help="With --acls: everyone may use a resource that has no ACL (no)."),
    ] = None,
    health: Health = None,
    access_log: AccessLog = None,
    announce: Announce = False,
    name: Name = None,
    as_json: AsJson = False,
    log_format: ServerFormat = None,
    log_level: ServerLevel = None,
) -> None:
    """Run a small Kafka-compatible broker, for laptops, CI and the edge."""
    from ottla.brokerlite.config import BrokerConfig
    from ottla.brokerlite.serve import run_broker

    _all_imported()
    given: dict[str, Any] = {
        "listen": listen,
        "data": data,
        "advertise": advertise,
        "node_id": node_id,
        "default_partitions": partitions,
        "auto_create": auto_create,
        "group_initial_rebalance_delay": group_delay,
        "sync": sync,
        "acls": acls,
        "super_users": tuple(super_user) if super_user else None,
        "allow_if_no_acl": allow_if_no_acl,
        "health": health,
        "access_log": access_log,
    }

    def broker_name(field: str) -> str:
        from ottla.brokerlite.config_file import name_of

        return name_of(field)

    def read(file: ConfigFile) -> BrokerConfig:
        from ottla.brokerlite.config_file import read_config

        return read_config(file, **given)

    logs = partial(server_logs, format=log_format, level=log_level)
    settings, reload = _read(config, logs, read, {"access_log": _log_access}, broker_name)

    async def server(task_status: "trio.TaskStatus[Any]") -> None:
        await run_broker(settings, reload=reload.reload if reload else None, task_status=task_status)

    def told(running: Any) -> dict[str, Any]:
        return {
            "listen": None if running.listen == running.bootstrap else running.listen,
            "advertised": None if running.advertised in (running.bootstrap, "") else running.advertised,
            "listeners": dict(running.listeners) if len(running.listeners) > 1 else None,
            "node_id": running.node_id,
            "cluster_id": running.cluster_id,
            "data": str(running.data),
            "temporary": settings.data is None,
            "sync": None if settings.data is None else str(settings.sync),
        }

    _serve("broker", server, told, settings.all_listeners[0].host, _announced_name(announce, name), as_json, reload)


def proxy(
    upstream: Annotated[
        str | None,
        typer.Option("--upstream", metavar="HOST:PORT", help="The brokers behind the proxy, or zeroconf://NAME."),
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option(
            "--listen",
            metavar="HOST:PORT",
            help="The address for clients; further nodes get the next ports by node id; default: 127.0.0.1:9092.",
        ),
    ] = None,
    first_node: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="ID",
            help="The node that gets --listen's port; node id + N gets port + N; default: the lowest id.",
        ),
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            metavar="GLOB=MODE[:PARTITIONER[:PARTITIONS]]",
            help="How to treat topics whose names match: observe, reject, rewrite, fan-out or copy:TOPIC[,TOPIC…]; by "
            "murmur2, crc32, fnv1a or fnv1a_reference; default: murmur2. The first match counts; these rules come "
            "before the file's. May be repeated.",
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A TOML file with these options (not --announce, --name, --json)."),
    ] = None,
    upstream_config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="TLS and SASL for upstream: a properties file with Kafka's names.",
        ),
    ] = None,
    advertise: Annotated[
        str | None, typer.Option(metavar="HOST", help="The host that clients get from metadata.")
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Folder for the journal, so that restarts do not fence producers. ottla proxy journal shows it.",
        ),
    ] = None,
    health: Health = None,
    access_log: AccessLog = None,
    report: Annotated[
        str | None,
        typer.Option(
            "--report",
            metavar="HOST:PORT",
            help="Serve GET /report here: which clients put keys into the wrong partition. It has no login.",
        ),
    ] = None,
    report_keys: Annotated[
        bool | None, typer.Option("--report-keys", help="Show keys in the report; default: hashes.")
    ] = None,
    observe_sample: Annotated[
        int | None,
        typer.Option(metavar="COUNT", help="In mode observe, count the keys of only one batch in COUNT; default: 1."),
    ] = None,
    announce: Announce = False,
    name: Name = None,
    connect_timeout: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="How long to try to reach upstream; default: 10.")
    ] = None,
    request_timeout: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Timeout of the proxy's own requests; default: 30."),
    ] = None,
    delivery_timeout: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Fail records that upstream has not accepted in this time; default: 120."),
    ] = None,
    max_buffered: Annotated[
        int | None,
        typer.Option(
            metavar="BYTES",
            help="Limit of memory for clients; above it, the clients using most memory wait; default: 67108864.",
        ),
    ] = None,
    max_batch: Annotated[
        int | None,
        typer.Option(metavar="BYTES", help="Merge batches of a producer into one up to this size; default: 524288."),
    ] = None,
    max_request_bytes: Annotated[
        int | None, typer.Option(metavar="BYTES", help="The largest request that is accepted; default: 104857600.")
    ] = None,
    max_connections: Annotated[
        int | None, typer.Option(metavar="COUNT", help="Limit of client connections; default: 2000.")
    ] = None,
    stats_interval: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Time between two lines of statistics in the log; default: 60."),
    ] = None,
    as_json: AsJson = False,
    log_format: ServerFormat = None,
    log_level: ServerLevel = None,
) -> None:
    """Run a proxy that puts records with equal keys into one partition, whatever partitioner their clients use."""
    from ottla.proxy.config import ProxyConfig
    from ottla.proxy.descriptors import needed
    from ottla.proxy.serve import run_proxy
    from ottla.proxy.topic_rule import never_applied, parse_rule

    _all_imported()
    if upstream is None and config is None:
        raise exits.fail(ConfigurationError("--upstream or --config is missing"))
    given: dict[str, Any] = {
        "upstream": upstream,
        "upstream_config": None if upstream_config is None else str(upstream_config),
        "listen": listen,
        "first_node": first_node,
        "advertise": advertise,
        "state": None if state is None else str(state),
        "health": health,
        "access_log": access_log,
        "report": report,
        "report_keys": report_keys,
        "observe_sample": observe_sample,
        "connect_timeout": connect_timeout,
        "request_timeout": request_timeout,
        "delivery_timeout": delivery_timeout,
        "max_buffered": max_buffered,
        "max_batch": max_batch,
        "max_request_bytes": max_request_bytes,
        "max_connections": max_connections,
        "stats_interval": stats_interval,
    }

    def read(file: ConfigFile) -> ProxyConfig:
        return proxy_config(file, topics=tuple(parse_rule(each) for each in topic or ()), **given)

    def change_rules(running: Any, rules: Any) -> None:
        running.change_rules(rules)

    def without_effect(settings: ProxyConfig) -> Sequence[str]:
        return tuple(never_applied(settings.topics, len(topic or ())))

    logs = partial(server_logs, format=log_format, level=log_level)
    live = {"access_log": _log_access, "acls": _change_acls, "topics": change_rules}
    settings, reload = _read(config, logs, read, live, dashed, without_effect)
    host = settings.all_listeners[0].host

    async def server(task_status: "trio.TaskStatus[Any]") -> None:
        await run_proxy(settings, reload=reload.reload if reload else None, task_status=task_status)

    def told(running: Any) -> dict[str, Any]:
        return {
            "advertised": None if running.advertised == running.bootstrap else running.advertised,
            "listeners": dict(running.listeners) if len(running.listeners) > 1 else None,
            "report": running.report,
            "upstream": settings.upstream,
        }

    _have_descriptors(needed(settings.max_connections))
    _serve("proxy", server, told, host, _announced_name(announce, name), as_json, reload)


def _log_access(running: Any, to: str | None) -> None:
    running.log_access(to)


def _change_acls(running: Any, acls: Any) -> None:
    running.change_acls(acls)


def proxy_config(file: ConfigFile, **options: Any) -> "ProxyConfig":
    """The configuration in a file, with the TLS and SASL settings of the file that it names."""
    from ottla.proxy.config_file import read_config

    settings = read_config(file, **options)
    if settings.upstream_config is None:
        return settings
    try:
        complete = replace(settings, **_security(Path(settings.upstream_config)))
        complete.check_forward()
        return complete
    except (typer.BadParameter, ConfigurationError) as error:
        why = error.message if isinstance(error, typer.BadParameter) else str(error)
        if options.get("upstream_config") is None:
            raise file.error(f"upstream-config: {why}") from None
        raise ConfigurationError(f"--upstream-config: {why}") from None


def _read(
    path: Path | None,
    read_logs: Callable[[ConfigFile], ServerLogs],
    read: Callable[[ConfigFile], C],
    live: Mapping[str, Callable[[Any, Any], None]],
    name_of: Callable[[str], str],
    warnings: Callable[[C], Sequence[str]] = lambda config: (),
) -> tuple[C, Configuration | None]:
    """Read the configuration of a server, and begin to log; also returns how to reload it, if there is a file."""
    with exits.reported():
        if path is not None:
            configuration = Configuration(path, read_logs, read, live, name_of, warnings)
            return configuration.config, configuration
        read_logs(NO_FILE).apply()
        config = read(NO_FILE)
        log_warnings(warnings(config))
        return config, None


def _all_imported() -> None:
    """Turn the garbage collector on again, after `main` has turned it off, and exempt everything imported so far."""
    gc.freeze()
    gc.enable()


def _have_descriptors(wanted: int = _DESCRIPTORS) -> None:
    """Raise the limit of open files: systems have a low default, for old programs that use select."""
    with suppress(ImportError, OSError, ValueError):  # Windows, or a system that refuses
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if 0 <= soft < wanted:
            most = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _give_memory_back() -> None:
    """Return large blocks to the system as they are freed.

    By default glibc keeps up to 64 MB per thread: after a few batches of 60 MB, 164 MB instead of 61 MB were measured.
    """
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):  # another C library
            tune = ctypes.CDLL(None).mallopt
            tune(_M_MMAP_THRESHOLD, _MB)
            tune(_M_TRIM_THRESHOLD, 4 * _MB)


def _security(file: Path) -> dict[str, Any]:
    """The TLS and SASL settings of a file."""
    found = command_config.read(file, option="--upstream-config", only_security=True)
    return {name: found[name] for name in ("tls", "sasl") if name in found}


def _announced_name(announce: bool, name: str | None) -> str | None:
    """The name to announce (an empty one is replaced by the machine's name and the port), or None."""
    if name is not None and not announce:
        raise typer.BadParameter("needs --announce", param_hint="--name")
    return (name or "") if announce else None


def _serve(
    kind: str,
    server: Server,
    told: Callable[[Any], Mapping[str, Any]],
    host: str,
    name: str | None,
    as_json: bool,
    configuration: Configuration | None,
) -> None:
    """Run ``server``, print where it listens, announce it if it has a name, and drain it when stopped."""

    async def announce(running: RunningServer, task_status: "trio.TaskStatus[str]") -> None:
        import trio

        from ottla.addresses import parse_address
        from ottla.sdk import discovery, mdns

        _, port = parse_address(running.bootstrap)
        chosen = name or f"{socket.gethostname().partition('.')[0]}-{port}"
        # A broker and the proxy in front of it are two ways into one cluster, and must not be mixed.
        properties = {mdns.CLUSTER: f"{kind} {told(running).get('cluster_id', chosen)}", "role": kind}
        async with discovery.announced(chosen, port, properties=properties, interfaces=mdns.interfaces_of(host)):
            task_status.started(chosen)
            await trio.sleep_forever()

    async def start(running: RunningServer, nursery: "trio.Nursery") -> None:
        facts = {"bootstrap": running.bootstrap, "health": running.health, **told(running)}
        if name is not None:
            facts["announced"] = f"zeroconf://{await nursery.start(announce, running)}"
        await stdio.say(_line(kind, facts, as_json))

    _have_descriptors()
    _give_memory_back()
    exits.run_server(server, start, configuration.hang_up if configuration else None)


def _line(kind: str, facts: dict[str, Any], as_json: bool) -> str:
    """The one line on stdout."""
    if as_json:
        return json.dumps({"event": "listening", "kind": kind, **facts})
    known = {key.replace("_", " "): value for key, value in facts.items() if value not in (None, False)}
    rest = ", ".join(key if value is True else f"{key} {value}" for key, value in known.items())
    return f"{kind} listens: {rest}"
