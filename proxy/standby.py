"""Waits for the state directory while another proxy uses it, and serves the health address meanwhile.

Theory of operation: a second proxy with the same state directory is a standby for the first, on the same host. It waits
for the lock, which the system releases when the first ends, in whatever way. Then it restores the journal, listens on
the same ports, and continues the sequences of the first one's producers.

Rules:
- A standby reads nothing of the journal, and listens on no port for clients: the first one has them.
- Its health address may be the first one's, too. Then it answers probes only once it has taken over.
- The system closes the sockets of a killed process in no certain order. So for a short time after the lock is released,
  a port that is in use is no error.
"""

import logging
import math
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Protocol, TypeVar

import trio

from ottla.addresses import format_address, parse_address
from ottla.config_file import Reloaded
from ottla.errors import ConfigurationError
from ottla.proxy.journal.state_directory import StateDirectory, StateInUse
from ottla.serve import serve_health
from ottla.server_metrics import Samples

log = logging.getLogger("ottla.proxy")

T = TypeVar("T")

_LOOK = 0.1
"""Seconds between two attempts to lock the state directory."""
_RELEASE = 3.0
"""Seconds after the lock in which ports may still be in use."""
_TRY_AGAIN = 0.02
"""Seconds between two attempts to listen meanwhile."""
_WAITS = "another proxy uses the state directory, and this one takes over when it ends"


class Probed(Protocol):
    """A proxy that has its state, as far as its health address asks."""

    def is_ready(self) -> bool:
        """Whether it serves clients."""
        ...

    def notes(self) -> list[str]:
        """Further lines about what its operator should know."""
        ...

    def samples(self) -> Samples:
        """Its metrics."""
        ...

    def reload(self) -> Reloaded:
        """Read the configuration file again."""
        ...


class Probes:
    """The health address of a proxy.

    Args:
        wanted: where it listens; ``None``: nowhere.
        reloads: the proxy has a configuration file, so that ``POST /reload`` works.

    Attributes:
        wanted: where it is to listen.
        address: ``host:port`` where it listens; ``None`` until then.
    """

    def __init__(self, wanted: str | None, *, reloads: bool) -> None:
        self.address: str | None = None
        self.wanted, self._reloads = wanted, reloads
        self._proxy: Probed | None = None
        self._waits = ""

    def wait(self, why: str) -> None:
        """Answer that the proxy waits."""
        self._waits = why

    def follow(self, proxy: Probed) -> None:
        """Answer for the proxy, which has its state now."""
        self._proxy, self._waits = proxy, ""

    async def open(self, nursery: trio.Nursery) -> None:
        """Listen, unless the proxy wants no health address, or does so already; answer in the nursery.

        Raises:
            ConfigurationError: the address cannot be used.
        """
        if self.wanted is None or self.address is not None:
            return
        host, port = parse_address(self.wanted, "health", any_port=True)
        refused: list[ConfigurationError] = []

        async def answer(*, task_status: trio.TaskStatus[int]) -> None:
            try:
                reload = self._reload if self._reloads else None
                await serve_health(
                    host, port, self._is_ready, self._samples, self._notes, reload=reload, opened=task_status.started
                )
            except ConfigurationError as error:
                refused.append(error)
                task_status.started(0)

        opened = await nursery.start(answer)
        if refused:
            raise refused[0]
        self.address = format_address(host, opened)

    def _is_ready(self) -> bool:
        return self._proxy is not None and self._proxy.is_ready()

    def _notes(self) -> list[str]:
        if self._proxy is not None:
            return self._proxy.notes()
        return [self._waits] if self._waits else []

    def _samples(self) -> Samples:
        return self._proxy.samples() if self._proxy is not None else _no_samples()

    def _reload(self) -> Reloaded:
        if self._proxy is None:
            raise ConfigurationError(f"the proxy is still starting: {self._waits or 'reload it later'}")
        return self._proxy.reload()


def _no_samples() -> Iterator[None]:
    yield from ()


async def own_state(path: Path, probes: Probes, nursery: trio.Nursery) -> tuple[StateDirectory, float]:
    """Lock a state directory, and wait for that while another proxy uses it.

    Returns:
        The directory, and the time until which ports of the other proxy may still be in use.

    Raises:
        ConfigurationError: the directory cannot be used.
    """
    try:
        return StateDirectory(path), -math.inf
    except StateInUse:
        probes.wait(f"{_WAITS}: {path}")
    health: object = "none"
    try:
        await probes.open(nursery)
        health = probes.address
    except ConfigurationError:  # probably the other proxy listens there
        health = f"{probes.wanted}, after takeover"
    log.warning("state directory in use by another proxy, waiting", extra={"state": str(path), "health": health})
    while True:
        await trio.sleep(_LOOK)
        try:
            state = StateDirectory(path)
        except StateInUse:
            continue
        log.info("the other proxy has ended, taking over", extra={"state": str(path)})
        return state, trio.current_time() + _RELEASE


async def released(listen: Callable[[], Awaitable[T]], by: float) -> T:
    """Return what ``listen`` returns; until the time ``by``, call it again if it cannot use the address.

    Raises:
        ConfigurationError: the address cannot be used.
    """
    while True:
        try:
            return await listen()
        except ConfigurationError:
            if trio.current_time() >= by:
                raise
        await trio.sleep(_TRY_AGAIN)
