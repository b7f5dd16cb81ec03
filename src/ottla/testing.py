"""A Kafka-compatible broker for tests, notebooks and scripts, in a thread of this process.

    with Broker() as broker:
        broker.create_topic("orders", partitions=3)
        my_service = start(bootstrap=broker.bootstrap)

With pytest, the fixture `ottla_broker` gives each test a fresh one. Secured, with users and certificates:

    with Broker(users={"alice": "secret"}, certificates=True) as broker:
        client = ottla.connect(broker.bootstrap, **broker.client_options("alice"))

Theory of operation: the broker runs in a thread with its own trio loop, so the code around it may be plain, or use trio
or asyncio, and clients of any language can connect. It listens on a free port of the loopback address and keeps its
topics in a temporary folder. `stop` raises errors of its thread, which fails the test.

Rule: importing this module is cheap, and needs no pytest: trio and the broker are imported when a broker starts.
"""

import atexit
import os
import shutil
import socket
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Never, Self, TypeVar

from ottla.errors import ConfigurationError
from ottla.misnamed import Misnamed
from ottla.unknown_options import nearest

if TYPE_CHECKING:
    import trio

    from ottla.brokerlite.config import BrokerConfig
    from ottla.brokerlite.serve import RunningBroker
    from ottla.throwaway_ca import ThrowawayCA
    from ottla.tls import ServerTLS

T = TypeVar("T")

PATIENCE = 30.0
"""Seconds that the broker may take to start, to stop, or to answer a call of the test."""

OPTIONS = ("users", "certificates", "tls")
"""The arguments of `Broker` besides its configuration; the marker ``ottla_broker`` takes them, too."""


def config_for_tests(data: Path | None = None, **fields: Any) -> "BrokerConfig":
    """The configuration of a test's broker.

    Args:
        data: the folder of the topics; ``None``: a temporary one.
        fields: other fields of the configuration, which override those for tests.
    """
    from ottla.brokerlite.config import BrokerConfig, Sync

    defaults: dict[str, Any] = {
        "sync": Sync.NEVER,
        "group_initial_rebalance_delay": 0,
        "group_consumer_heartbeat_interval": 0.5,
        "group_share_heartbeat_interval": 0.5,
    }
    if not fields.get("listeners"):  # they have ports of their own
        defaults["port"] = 0
    return BrokerConfig(data=data, **defaults | fields)


class Broker:
    """A broker in a thread, which runs as soon as it is created; use it as ``with Broker() as broker``.

    Without a ``with`` block, call `stop` at the end. A broker that still runs when the program ends is killed.

    ``Broker(users={"alice": "secret"})`` has users who log in by PLAIN or SCRAM. With ``certificates=True``, clients
    connect over TLS, and trust a CA that the broker makes for itself; `client_options` are the options of a client.

    Args:
        config: the broker's configuration, as in
            ``Broker(BrokerConfig(port=0, data=Path("kafka-data"), auto_create=False))``. By default the broker listens
            on a free port of the loopback address, syncs nothing to the disk, lets the first member of a group begin
            without waiting for others, and gives members of consumer groups and share groups their partitions within
            half a second. Without ``data`` the topics are in a temporary folder, which survives `stop`, `kill` and
            `restart`, and is removed at the end of the block or of the program.

        users: name -> password: clients have to authenticate, in SASL_PLAINTEXT or, with ``tls``, in SASL_SSL.
        certificates: make a CA and a certificate for the broker, so that clients connect over TLS. The certificate
            names the address that the broker listens on, the advertised one, and the loopback address. Without
            ``users``, a client may show a certificate of this CA, and is then its subject. Needs
            ``pip install 'ottla[certificates]'``.
        tls: your own certificate of the broker, instead of ``certificates``. With none of these, connections are in
            plain text.

    Attributes:
        config: as given, with the actual port and folder.
        bootstrap: ``host:port``, for clients; `restart` does not change it.
        host, port: the same, separately.
        data: the folder of the topics.
        ca: with ``certificates``, the CA's certificate in PEM: librdkafka's ``ssl.ca.pem``, Java's
            ``ssl.truststore.certificates``.
    """

    if not TYPE_CHECKING:
        bootstrap_servers = Misnamed("do you mean bootstrap?")

    def __init__(
        self,
        config: "BrokerConfig | None" = None,
        *,
        users: Mapping[str, str] | None = None,
        certificates: bool = False,
        tls: "ServerTLS | None" = None,
        **options: Never,
    ) -> None:
        from ottla.brokerlite.config import BrokerConfig, Sync

        if options:
            _refuse(options)
        if config is None:
            config = config_for_tests()
        if not isinstance(config, BrokerConfig):
            example = "Broker(BrokerConfig(port=0, data=Path('kafka-data')))"
            raise ConfigurationError(f"config must be a BrokerConfig, as in {example}, not {config!r}")
        if config.listeners and (users is not None or certificates or tls is not None):
            raise ConfigurationError(
                "users, certificates and tls are for a config without listeners, which have their own security"
            )
        self._has_own_security = bool(config.listeners) or tls is not None
        self._ca: ThrowawayCA | None = None
        self.ca: str | None = None
        if certificates:
            from ottla import throwaway_ca

            if tls is not None:
                raise ConfigurationError("give certificates=True or tls=…, not both")
            self._ca = throwaway_ca.ThrowawayCA()
            self.ca, tls = self._ca.pem, self._ca.server(*_hosts(config), certificates=users is None)
        if users is not None or tls is not None:
            config = _secured(config, users is not None, tls)
        self._users = dict(users or {})
        self._remove_data: weakref.finalize[..., Broker] | None = None
        if config.data is None:
            folder = tempfile.mkdtemp(prefix="ottla-broker-")
            self._remove_data = weakref.finalize(self, _remove, folder, os.getpid())
            config = replace(config, data=Path(folder), sync=Sync.NEVER)
        self.config = config
        self._thread: threading.Thread | None = None
        self._token: trio.lowlevel.TrioToken | None = None
        self._running: RunningBroker | None = None
        self._error: BaseException | None = None
        main = config.all_listeners[0]
        self._reserves = main.port == 0 and main.host == "127.0.0.1" and sys.platform == "linux"
        self._free_port: weakref.finalize[..., Broker] | None = None
        self.start()

    def __repr__(self) -> str:
        running = self._thread is not None and self._thread.is_alive()
        where = getattr(self, "bootstrap", "without an address")  # so is a broker that could not start
        return f"<Broker {where}, {'running' if running else 'stopped'}>"

    def __enter__(self) -> Self:
        if self._thread is None:
            self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self.stop()
        finally:
            if self._free_port is not None:
                self._free_port()
            if self._remove_data is not None:
                self._remove_data()

    def _reserve_port(self, host: str, port: int) -> int:
        """Bind a free port, or ``port``, until the block ends, so that no other program gets it meanwhile.

        Otherwise any program's outgoing connection could get it while the broker is down, even a client's connection
        to the broker: that would then be connected to itself, and the broker could not start again.
        """
        reserved = socket.socket()
        # The finalizer is for brokers without a block. It must not be the usual way: an exception that a signal raises
        # in the main thread, such as Ctrl-C, would be lost in it, and the socket would stay open.
        self._free_port = weakref.finalize(self, reserved.close)
        if port:  # connections of the block before may linger there
            reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reserved.bind((host, port))
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # otherwise the broker could not listen there
        return int(reserved.getsockname()[1])

    def start(self) -> None:
        """Start, on the same port and folder; only needed after `stop` or `kill`."""
        if self._thread is not None:
            raise RuntimeError("the broker runs already")
        if self._remove_data is not None and not self._remove_data.alive:
            raise RuntimeError("this broker's block has ended, and its temporary folder is removed: create another one")
        if self._reserves and (self._free_port is None or not self._free_port.alive):
            main = self.config.all_listeners[0]
            self.config = self.config.at_port(self._reserve_port(main.host, main.port))
        ready = threading.Event()
        self._error = None
        self._thread = threading.Thread(target=self._run, args=(ready,), name="ottla_broker", daemon=True)
        self._thread.start()
        # Otherwise the broker would write into its folder until the interpreter stops the thread in mid-write.
        atexit.register(self.kill)
        if not ready.wait(PATIENCE):
            raise TimeoutError(f"the broker did not start within {PATIENCE:g} s")
        if self._running is None:
            self._join()
            raise RuntimeError("the broker ended while it started")
        self.host, self.port, self.bootstrap = self._running.host, self._running.port, self._running.bootstrap
        self.data: Path = self._running.data
        self.config = self.config.at_port(self.port)

    def stop(self) -> None:
        """Shut down cleanly, if it runs; raises errors of the broker's thread."""
        self._end("drain")

    def kill(self) -> None:
        """Stop at once: no further response is sent, and the folder is left as kill -9 would leave it."""
        self._end("kill")

    def restart(self) -> None:
        """Stop cleanly and start again, on the same port and folder."""
        self.stop()
        self.start()

    def create_topic(self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        """Create a topic; raises an `ottla.errors.BrokerError` if the broker refuses.

        Args:
            configs: Kafka's, as strings: ``{"retention.ms": "60000"}``.
        """
        self._call(lambda running: running.create_topic(name, partitions, {} if configs is None else configs))

    def client_options(self, user: str | None = None) -> dict[str, Any]:
        """The options of a client, as in ``ottla.connect(broker.bootstrap, **broker.client_options("alice"))``.

        Args:
            user: one of ``users``, by SCRAM-SHA-512. Without ``users``, but with ``certificates``, any name: the client
                shows a certificate, and is ``User:CN=<name>``; or ``None``: it shows none.

        Raises:
            ConfigurationError: there is no such user, no certificate can name the user, or the broker has a
                certificate or listeners of yours, whose clients it does not know.
        """
        from ottla.sasl import ScramSha512

        if self._has_own_security:
            raise ConfigurationError(
                "this broker has a certificate or listeners of yours: give the client the options that they need"
            )
        options: dict[str, Any] = {}
        has_users = self.config.all_listeners[0].protocol.has_sasl
        if has_users:
            if user is None or user not in self._users:
                known = ", ".join(map(repr, self._users)) or "there are none"
                raise ConfigurationError(f"user is {user!r}; name one of the users: {known}")
            options["sasl"] = ScramSha512(user, self._users[user])
        elif user is not None and self._ca is None:
            raise ConfigurationError("this broker has no users: give it users={…}, or certificates=True")
        if self._ca is not None:
            options["tls"] = self._ca.client(None if has_users else user)
        return options

    def _call(self, function: "Callable[[RunningBroker], T]") -> T:
        """Call ``function`` in the broker's loop; returns its result or raises its error."""
        if self._running is None or self._token is None:
            raise RuntimeError("the broker is not running")
        done = threading.Event()
        outcome: list[T] = []
        errors: list[Exception] = []
        running = self._running

        def call() -> None:
            try:
                outcome.append(function(running))
            except Exception as error:  # raised again in the test
                errors.append(error)
            done.set()

        self._token.run_sync_soon(call)
        if not done.wait(PATIENCE):
            raise TimeoutError(f"the broker did not answer within {PATIENCE:g} s")
        if errors:
            raise errors[0]
        return outcome[0]

    def _end(self, how: str) -> None:
        if self._thread is None:
            return
        if self._thread.is_alive() and self._running is not None:
            self._call(lambda running: getattr(running, how)())
        self._join()

    def _join(self) -> None:
        assert self._thread is not None
        self._thread.join(PATIENCE)
        if self._thread.is_alive():
            raise TimeoutError(f"the broker did not stop within {PATIENCE:g} s")
        atexit.unregister(self.kill)
        self._thread = self._running = self._token = None
        if self._error is not None:
            raise self._error

    def _run(self, ready: threading.Event) -> None:
        try:
            import trio

            trio.run(self._main, ready)
        except BaseException as error:  # of any kind: raised again in the test
            self._error = _first(error)
        finally:
            ready.set()

    async def _main(self, ready: threading.Event) -> None:
        import trio

        from ottla.brokerlite.serve import run_broker

        self._token = trio.lowlevel.current_trio_token()
        async with trio.open_nursery() as nursery:
            self._running = await nursery.start(run_broker, self.config)
            for user, password in self._users.items():
                self._running.set_password(user, password)
            ready.set()


def _refuse(options: Mapping[str, object]) -> Never:
    """Raise the error about options that `Broker` does not have; it shows no value, which may be a password."""
    from ottla.brokerlite.config import BrokerConfig

    for name in options:
        if name not in BrokerConfig.__dataclass_fields__ and (near := nearest(name, OPTIONS)):
            raise TypeError(f"Broker() has no option {name}: do you mean {near}?")
    given = ", ".join(f"{name}=…" for name in options)
    raise TypeError(f"Broker() takes a BrokerConfig, as in Broker(BrokerConfig({given})), and no other options")


def _hosts(config: "BrokerConfig") -> list[str]:
    """The hosts to which clients connect, unless the broker listens on every address."""
    from ottla.listeners import WILDCARDS

    main = config.all_listeners[0]
    advertised, _ = main.advertised(main.port)
    return [each for each in (main.host, advertised) if each is not None and each not in WILDCARDS]


def _secured(config: "BrokerConfig", has_users: bool, tls: "ServerTLS | None") -> "BrokerConfig":
    """The configuration with one listener, at the same address, that has users or TLS or both."""
    from ottla.listeners import ListenerConfig, SecurityProtocol
    from ottla.sasl_server.settings import SaslSettings

    kind = ("SASL_" if has_users else "") + ("PLAINTEXT" if tls is None else "SSL")
    sasl = SaslSettings(mechanisms=("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN")) if has_users else None
    listener = ListenerConfig(
        protocol=SecurityProtocol(kind),
        host=config.host,
        port=config.port,
        advertise=config.advertise,
        tls=tls,
        sasl=sasl,
    )
    return replace(config, listeners=(listener,), host="127.0.0.1", port=9092, advertise=None)


def _remove(folder: str, process: int) -> None:
    if os.getpid() == process:  # a forked worker must leave its parent's folder alone
        shutil.rmtree(folder, ignore_errors=True)


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
