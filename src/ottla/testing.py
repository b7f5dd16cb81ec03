"""A pytest plugin: the fixture `ottla_broker` gives a test a fresh Kafka-compatible broker of its own.

    def test_orders(ottla_broker):
        ottla_broker.create_topic("orders", partitions=3)
        my_service = start(bootstrap=ottla_broker.bootstrap)

Theory of operation: the broker runs in a thread with a trio loop of its own, so a test may be plain, trio's or
asyncio's, and clients of any language can connect. It listens on a free port of the loopback address, keeps its topics
in pytest's temporary folder, and ends with the test; an error in its thread fails the test.

Rule: importing this module costs nothing: trio and the broker are imported when the fixture is first used.
"""

import socket
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import pytest

if TYPE_CHECKING:
    import trio

    from ottla.brokerlite.config import BrokerConfig
    from ottla.brokerlite.serve import Running

T = TypeVar("T")

PATIENCE = 10.0
"""Seconds that the broker may take to start, to stop, or to answer a call of the test."""


class Broker:
    """A broker in a thread.

    Attributes:
        config: as given, with the port that was found.
        bootstrap: ``host:port``, for clients; stays the same over `restart`.
        host, port: the same in two.
        data: the folder of the topics.
    """

    def __init__(self, config: "BrokerConfig") -> None:
        self.config = config
        self._thread: threading.Thread | None = None
        self._token: trio.lowlevel.TrioToken | None = None
        self._running: Running | None = None
        self._error: BaseException | None = None
        if config.port == 0 and config.host == "127.0.0.1" and sys.platform == "linux":
            self.config = replace(config, port=self._reserve_port(config.host))
        self.start()

    def _reserve_port(self, host: str) -> int:
        """A free port, bound until this object is gone: while the broker is down, the system gives it to nobody else.

        It could be given to any program's outgoing connection, and even to one that a client makes to the broker: that
        would then be connected to itself, and the broker could not start again.
        """
        reserved = socket.socket()
        weakref.finalize(self, reserved.close)
        reserved.bind((host, 0))
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # or the broker could not listen there
        return int(reserved.getsockname()[1])

    def start(self) -> None:
        """Start, on the port and the folder it had; needed only after `stop` or `kill`."""
        if self._thread is not None:
            raise RuntimeError("the broker runs already")
        ready = threading.Event()
        self._error = None
        self._thread = threading.Thread(target=self._run, args=(ready,), name="ottla_broker", daemon=True)
        self._thread.start()
        if not ready.wait(PATIENCE):
            raise TimeoutError(f"the broker did not start within {PATIENCE:g} s")
        if self._running is None:
            self._join()
            raise RuntimeError("the broker ended while it started")
        self.host, self.port, self.bootstrap = self._running.host, self._running.port, self._running.bootstrap
        self.data: Path = self._running.data
        self.config = replace(self.config, port=self.port)

    def stop(self) -> None:
        """Shut down in good order, if it runs; raises what went wrong in the broker's thread."""
        self._end("drain")

    def kill(self) -> None:
        """Stop at once: nothing is answered any more, and the folder is left as kill -9 would leave it."""
        self._end("kill")

    def restart(self) -> None:
        """Stop in good order and start again, on the same port and folder."""
        self.stop()
        self.start()

    def create_topic(self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        """Make a topic; raises an `ottla.errors.BrokerError` if the broker will not."""
        self._call(lambda running: running.create_topic(name, partitions, configs or {}))

    def _call(self, function: "Callable[[Running], T]") -> T:
        """Call ``function`` within the broker's loop; its result or exception."""
        if self._running is None or self._token is None:
            raise RuntimeError("the broker does not run")
        done = threading.Event()
        outcome: list[T] = []
        errors: list[Exception] = []
        running = self._running

        def call() -> None:
            try:
                outcome.append(function(running))
            except Exception as error:  # handed to the test, which asked for it
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
        self._thread = self._running = self._token = None
        if self._error is not None:
            raise self._error

    def _run(self, ready: threading.Event) -> None:
        try:
            import trio

            trio.run(self._main, ready)
        except BaseException as error:  # whatever it is, it belongs to the test
            self._error = _first(error)
        finally:
            ready.set()

    async def _main(self, ready: threading.Event) -> None:
        import trio

        from ottla.brokerlite.serve import run_broker

        self._token = trio.lowlevel.current_trio_token()
        async with trio.open_nursery() as nursery:
            self._running = await nursery.start(run_broker, self.config)
            ready.set()


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


@pytest.fixture
def ottla_broker(tmp_path: Path) -> Iterator[Broker]:
    """A fresh broker: `.bootstrap`, `.create_topic(name, partitions=3)`, `.restart()`, `.kill()`, `.data`."""
    from ottla.brokerlite.config import BrokerConfig, Sync

    config = BrokerConfig(port=0, data=tmp_path / "ottla-broker", sync=Sync.NEVER, group_initial_rebalance_delay=0)
    broker = Broker(config)
    try:
        yield broker
    finally:
        broker.stop()
