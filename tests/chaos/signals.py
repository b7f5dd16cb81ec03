"""The signals of a worker in a chaos run: SIGTERM ends it, SIGUSR1 makes it slow."""

import signal

import trio


async def terminated() -> None:
    """Wait for SIGTERM."""
    with trio.open_signal_receiver(signal.SIGTERM) as signals:
        async for _ in signals:
            return


class Slowness:
    """Remembers whether the next batch is to take long."""

    def __init__(self) -> None:
        self._asked = False

    async def listen(self) -> None:
        with trio.open_signal_receiver(signal.SIGUSR1) as signals:
            async for _ in signals:
                self._asked = True

    def take(self) -> bool:
        """Whether SIGUSR1 came since the last call."""
        asked, self._asked = self._asked, False
        return asked
