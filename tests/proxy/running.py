"""A proxy in a thread of its own, for tests whose clients block."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import trio

from ottla.proxy.config import ProxyConfig
from ottla.proxy.serve import RunningProxy, run_proxy
from ottla.proxy.topic_rule import parse_rule
from tests.patience import HUNG


class ProxyThread:
    """A proxy that runs: `running` and `bootstrap` once it is entered."""

    running: RunningProxy
    bootstrap: str

    def __init__(self, upstream: str, *rules: str, **options: Any) -> None:
        if "listeners" not in options:
            options.setdefault("listen", "127.0.0.1:0")
        self.config = ProxyConfig(upstream=upstream, topics=tuple(map(parse_rule, rules)), **options)
        self._started = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)

    def start(self) -> None:
        self._thread.start()
        assert self._started.wait(HUNG), "the proxy did not start"
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """Drain, and raise the thread's error, if there was one."""
        if self._thread.is_alive():
            self._token.run_sync_soon(self.running.drain)
        self._thread.join(HUNG)
        assert not self._thread.is_alive(), "the proxy did not end"
        if self._error is not None:
            raise self._error

    def kill(self) -> None:
        """End at once, in the midst of its work."""
        self._token.run_sync_soon(self._scope.cancel)
        self._thread.join(HUNG)
        assert not self._thread.is_alive(), "the proxy did not end"

    def _run(self) -> None:
        try:
            trio.run(self._main)
        except BaseException as error:
            self._error = error
        finally:
            self._started.set()

    async def _main(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        with trio.CancelScope() as self._scope:
            async with trio.open_nursery() as nursery:
                self.running = await nursery.start(self._serve)
                self.bootstrap = self.running.bootstrap
                self._started.set()

    async def _serve(self, *, task_status: trio.TaskStatus[RunningProxy]) -> None:
        await run_proxy(self.config, task_status=task_status)


@contextmanager
def proxied(upstream: str, *rules: str, **options: Any) -> Iterator[ProxyThread]:
    proxy = ProxyThread(upstream, *rules, **options)
    proxy.start()
    try:
        yield proxy
    finally:
        proxy.stop()
