"""`ottla broker` as a process, with a port and a folder that stay the same over restarts."""

import signal
import subprocess
import sys
from pathlib import Path

from tests.kafka import free_ports
from tests.patience import HUNG


class BrokerProcess:
    """A broker that can be killed and started again.

    Attributes:
        bootstrap: ``host:port``.
        data: the folder of its topics.
        log: the standard error of all its processes.
    """

    def __init__(self, data: Path, *options: str) -> None:
        self.bootstrap = f"127.0.0.1:{free_ports(1)[0]}"
        self.data = data
        self.log = data.with_name(f"{data.name}.log")
        self._options = options
        self.revive()

    def start(self) -> None:
        """Start the process."""
        command = [sys.executable, "-m", "ottla", "broker", "--listen", self.bootstrap, "--data", str(self.data)]
        with self.log.open("ab") as errors:
            self._process = subprocess.Popen(
                [*command, *self._options, "--json"], stdout=subprocess.PIPE, stderr=errors
            )

    def revive(self) -> None:
        """Start the process, and return once it listens."""
        self.start()
        assert self._process.stdout is not None
        assert self._process.stdout.readline(), f"the broker did not start:\n{self.log.read_text()[-2000:]}"

    @property
    def runs(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """Kill the process (`kill -9`)."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End the process in good order."""
        self._end(signal.SIGTERM)

    def freeze(self) -> None:
        """Stop the process until `thaw`; its connections stay open."""
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def _end(self, sig: signal.Signals) -> None:
        self._process.send_signal(sig)
        self._process.wait(HUNG)
        assert self._process.stdout is not None
        self._process.stdout.close()
