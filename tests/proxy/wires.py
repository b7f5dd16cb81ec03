"""A relay that knows no frames, and does to connections what networks do: it cuts them anywhere, also within a frame,
holds bytes back, and closes one of two directions.

    with Wires(("127.0.0.1", 9092)) as wires:
        wires.cut(rng)               # clients talk to wires.address
        wires.hold(rng, 2.0)
        wires.half(rng)

It runs in threads of its own. A fault hits some of the existing connections, chosen by ``rng``.
"""

import contextlib
import random
import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import Self

from tests.accepting import AcceptingThread
from tests.patience import HUNG

CHUNK = 2**16
SHARE = 0.5
"""The share of the connections that a fault hits; at least one."""
_RESET = struct.pack("ii", 1, 0)
"""``SO_LINGER`` for a socket that its close must reset."""


class _Direction:
    """The bytes from one end to the other.

    Attributes:
        gate: open while bytes pass.
        budget: the number of bytes that still pass before ``then``; ``None``: no limit.
    """

    def __init__(self, wire: "_Wire", source: socket.socket, sink: socket.socket) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.budget: int | None = None
        self.then: Callable[[], None] = wire.cut
        self._source, self._sink = source, sink

    def run(self) -> None:
        with contextlib.suppress(OSError):
            while data := self._source.recv(CHUNK):
                self.gate.wait()
                if self.budget is not None and len(data) >= self.budget:
                    self._sink.sendall(data[: self.budget])
                    self.then()
                    return
                if self.budget is not None:
                    self.budget -= len(data)
                self._sink.sendall(data)
            self.close()

    def close(self) -> None:
        """Tell the sink that no more bytes come."""
        with contextlib.suppress(OSError):
            self._sink.shutdown(socket.SHUT_WR)


class _Wire:
    """A connection through the relay."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.ends = client, server
        self.directions = _Direction(self, client, server), _Direction(self, server, client)
        self._threads = [threading.Thread(target=each.run, name="wire", daemon=True) for each in self.directions]

    @property
    def runs(self) -> bool:
        """Whether bytes can pass in at least one direction."""
        return any(each.is_alive() for each in self._threads)

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def cut(self) -> None:
        """Reset both ends."""
        for end in self.ends:
            with contextlib.suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                end.shutdown(socket.SHUT_RDWR)  # wakes the threads
        for each in self.directions:
            each.gate.set()

    def close(self) -> None:
        """Close the sockets once no thread uses them: other threads could otherwise meet reused descriptors."""
        for thread in self._threads:
            thread.join(HUNG)
        for end in self.ends:
            end.close()


class Wires:
    """Listens on ``listen`` and passes everything on to ``upstream``; a context manager.

    Attributes:
        done: the faults so far, with the number of connections that each hit.
    """

    def __init__(self, upstream: tuple[str, int] | None = None, listen: tuple[str, int] = ("127.0.0.1", 0)) -> None:
        self.upstream = upstream
        """The address of upstream; it may be set later, and connections are refused until then."""
        self.done: dict[str, int] = {"cut": 0, "cut in a frame": 0, "held": 0, "half closed": 0}
        self._accepting = AcceptingThread(socket.create_server(listen), self._accepted)
        self.address = "{}:{}".format(*self._accepting.address)
        self._wires: list[_Wire] = []

    def __enter__(self) -> Self:
        self._accepting.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._accepting.close()
        for wire in self._wires:
            wire.cut()
        for wire in self._wires:
            wire.close()

    def _accepted(self, client: socket.socket) -> None:
        self._sweep()
        try:
            assert self.upstream is not None, "upstream must be set before the first connection"
            server = socket.create_connection(self.upstream, timeout=HUNG)
        except OSError:
            client.close()
            return
        for end in (client, server):
            end.settimeout(None)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        wire = _Wire(client, server)
        self._wires.append(wire)
        wire.start()

    def _sweep(self) -> None:
        """Close connections that have ended on both sides."""
        for wire in [each for each in self._wires if not each.runs]:
            wire.close()
            self._wires.remove(wire)

    # -- faults

    def cut(self, rng: random.Random) -> None:
        """Reset some connections now."""
        for wire in self._some(rng):
            wire.cut()
            self.done["cut"] += 1

    def cut_in_a_frame(self, rng: random.Random) -> None:
        """Reset some connections after a few more bytes in one direction."""
        for wire in self._some(rng):
            rng.choice(wire.directions).budget = rng.choice([1, 3, 4, 7, 20, 100, 1000, 20_000])
            self.done["cut in a frame"] += 1

    def half(self, rng: random.Random) -> None:
        """End one direction of some connections after a few more bytes; the other continues."""
        for wire in self._some(rng):
            direction = rng.choice(wire.directions)
            direction.then = direction.close
            direction.budget = rng.choice([1, 4, 100, 20_000])
            self.done["half closed"] += 1

    def hold(self, rng: random.Random, seconds: float) -> None:
        """Hold back all bytes of some connections, in one direction or both, for so long."""
        held: list[_Direction] = []
        for wire in self._some(rng):
            held += rng.choice([wire.directions[:1], wire.directions[1:], wire.directions])
            self.done["held"] += 1
        for each in held:
            each.gate.clear()
        time.sleep(seconds)
        for each in held:
            each.gate.set()

    def _some(self, rng: random.Random) -> list[_Wire]:
        live = [each for each in list(self._wires) if each.runs]
        chosen = [each for each in live if rng.random() < SHARE]
        return chosen or live[:1]
