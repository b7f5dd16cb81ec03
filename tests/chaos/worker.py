"""The programs of a chaos run, ``python -m tests.chaos.worker JSON``, each with a client of its own.

They write all events into their journal, and end in good order at SIGTERM. Errors that the client need not survive end
them.
"""

import json
import logging
import re
import signal
import sys
from pathlib import Path

import trio

import ottla
from ottla import TLS, ScramSha512
from ottla.sdk.client import Client
from tests.chaos.consuming import consume
from tests.chaos.journal import Journal
from tests.chaos.producing import produce
from tests.chaos.setup import Setup
from tests.chaos.telling import tell
from tests.chaos.transforming import transform

PROGRAMS = {"producer": produce, "consumer": consume, "teller": tell, "transformer": transform}
_MOMENTARY = re.compile(r"for 0\.\d s")


class Logged(logging.Handler):
    """Writes the client's log records into the journal."""

    def __init__(self, journal: Journal) -> None:
        super().__init__(logging.WARNING)
        self._journal = journal
        self._plain = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}

    def emit(self, record: logging.LogRecord) -> None:
        more = {key: str(value) for key, value in vars(record).items() if key not in self._plain}
        self._journal.write("log", record.levelname, record.getMessage(), more)


async def explain(journal: Journal, client: Client) -> None:
    """Each second, write down what the client is waiting for, unless the wait has just begun."""
    while True:
        await trio.sleep(1)
        if told := [line for line in client.explain().splitlines() if not _MOMENTARY.search(line)]:
            journal.write("waiting", "\n".join(told))


async def main(setup: Setup, journal: Journal) -> None:
    tls = TLS(ca=Path(setup.ca).read_text()) if setup.ca else None
    sasl = ScramSha512(setup.role, setup.password) if setup.ca else None
    async with (
        ottla.connect(setup.bootstrap, client_id=setup.name, tls=tls, sasl=sasl) as client,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(explain, journal, client)
        await PROGRAMS[setup.role](setup, journal, client)
        nursery.cancel_scope.cancel()
    journal.write("ended")


if __name__ == "__main__":
    given = Setup(**json.loads(sys.argv[1]))
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)  # until the program can handle it
    written = Journal(Path(given.journal))
    logging.getLogger("ottla").addHandler(Logged(written))
    trio.run(main, given, written)
