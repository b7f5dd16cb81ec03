"""A handwritten client, for requests that the shipped client does not send: a script with one request at a time.

Rules:
- It has one connection. If that breaks, or no answer comes in time, the request's answer is ``None``: its outcome is
  unknown.
- After a kill, another process takes its place.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import partial
from typing import Any

from ottla.codec import frames
from ottla.codec.apis import APIS
from ottla.codec.wire import api
from ottla.sdk.events import Close, Connect, Connected, Event, Key, Lost, Received, Send
from tests.sim.clock import Clock
from tests.sim.history import History
from tests.sim.network import PORT, Network
from tests.sim.process import SimulatedProcess

TIMEOUT = 4.0
"""Seconds until a request times out."""


@dataclass(frozen=True, slots=True)
class Ask:
    """A request and its version."""

    message: Any
    version: int


Steps = Generator["Ask | float", Any, Any]
"""A script that yields requests, and gets each answer or ``None``; it may also yield seconds to sleep."""


class Peer(SimulatedProcess):
    """A process with one connection (a `tests.sim.network.Client`)."""

    def __init__(self, name: str, node: int, clock: Clock, network: Network, history: History) -> None:
        super().__init__(name, clock, network, history)
        self.again: Callable[[], None] | None = None
        """Starts another process with the same script."""
        self._node = node
        self._key: Key | None = None
        self._connected = False
        self._connections = self._asked = 0
        self._waits: Ask | None = None
        self._reader = frames.FrameReader()
        self._script: Steps | None = None
        self._done: Callable[[], None] = lambda: None

    def run(self, script: Steps, done: Callable[[], None]) -> None:
        """Run a script; ``done`` is called at its end, unless the process is killed before."""
        self._script, self._done = script, done
        self.clock.later(0.0, partial(self._advance, None))

    def hear(self, event: Event) -> None:
        """Handle an event of the network."""
        if self.held(partial(self.hear, event)):
            return
        match event:
            case Connected(key=key) if key == self._key:
                self._connected = True
                self._send()
            case Received(key=key, data=data) if key == self._key:
                for frame in self._reader.feed(data):
                    self._answered(frame)
            case Lost(key=key) if key == self._key:
                self._key = None
                self._answer(None)

    # -- internals

    def _advance(self, value: Any) -> None:
        if self._script is None or self.held(partial(self._advance, value)):
            return
        try:
            what = self._script.send(value)
        except StopIteration:
            self._done()
            return
        if isinstance(what, Ask):
            self._ask(what)
        else:
            self.clock.later(what, partial(self._advance, None))

    def _ask(self, ask: Ask) -> None:
        self._asked += 1
        self._waits = ask
        self.clock.later(TIMEOUT, partial(self._time_out, self._asked))
        if self._key is None:
            self._connections += 1
            self._key, self._connected, self._reader = (self._node, f"{self._connections}"), False, frames.FrameReader()
            self.network.connect(self, Connect(self._key, f"n{self._node}", PORT + self._node))
        elif self._connected:
            self._send()

    def _send(self) -> None:
        if self._waits is not None and self._key is not None:
            parts = frames.build_request(self._waits.message, self._waits.version, self._asked, self.name)
            self.network.send(self, Send(self._key, (parts,)))

    def _time_out(self, number: int) -> None:
        if number != self._asked or self._waits is None or self.held(partial(self._time_out, number)):
            return
        if self._key is not None:
            self.network.close(self, Close(self._key))
            self._key = None
        self._answer(None)

    def _answered(self, frame: bytes) -> None:
        assert self._waits is not None
        cls = APIS[api(type(self._waits.message)).key].response
        _, answer = frames.parse_response(cls, self._waits.version, frame)
        self._answer(answer)

    def _answer(self, answer: Any) -> None:
        if self._waits is not None:
            self._waits = None
            self._advance(answer)
