"""One accepted connection: passes frames to the service, and its answers back, in order and within limits."""

import errno
import itertools
import logging
import select
import socket
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

import trio

from ottla.client_info import ClientInfo
from ottla.codec.wire import Buffer, Part, Unreadable
from ottla.errors import AuthenticationFailed, ConnectionLost, RemoteProtocolError
from ottla.serve.listener_context import ListenerContext
from ottla.serve.outbox import Outbox, hang_up, write_on
from ottla.serve.pending_answer import ObservedAnswer, PendingAnswer
from ottla.serve.receiver import Receiver
from ottla.serve.traffic import Refusal
from ottla.tls import TlsConnection

_TURN_SECONDS = 0.002
"""The work for one connection after which the others get their turn: its peer may have sent requests together that take
much longer."""

log = logging.getLogger("ottla.serve")


class Service(Protocol):
    """The service behind a listener. Its methods must not block."""

    def connected(self, connection: "AcceptedConnection") -> None: ...

    def identified(self, connection: "AcceptedConnection") -> None:
        """The client has authenticated, or need not: its session has its principal, if this side knows it."""
        return

    def request(self, connection: "AcceptedConnection", frame: Buffer, answer: "PendingAnswer") -> None:
        """Handle a frame (without its length); fill ``answer`` now or later.

        The memory of a frame is reused once there is no view of it any more.

        Raises:
            RemoteProtocolError: the frame violates the protocol; the connection is closed.
        """

    def begins_passage(self, connection: "AcceptedConnection", size: int, start: bytes) -> bool:
        """Whether to pass on a large frame piece by piece as its bytes arrive: `begin`, and then `go_on`.

        Args:
            size: of the frame, without its length.
            start: its bytes so far, at least 4.
        """
        return False

    def begin(self, connection: "AcceptedConnection", size: int, start: bytes, answer: "PendingAnswer") -> None:
        """Handle the beginning of such a frame, after `begins_passage`."""
        raise AssertionError("this service takes whole frames only")

    def go_on(self, connection: "AcceptedConnection", data: bytes) -> None:
        """Handle its next bytes. If the connection ends before the last ones, only `disconnected` tells of it."""
        raise AssertionError("this service takes whole frames only")

    def handed_out(self, connection: "AcceptedConnection") -> None:
        """All frames of this turn have been passed to `request`: a service may now handle them in one go."""

    def lost(self, connection: "AcceptedConnection") -> None:
        """The peer of a held connection is gone, and takes no answers. Its earlier requests are still handed over.

        It may be called several times while the connection is held.
        """

    def disconnected(self, connection: "AcceptedConnection") -> None: ...


class AcceptedConnection:
    """One accepted connection.

    Attributes:
        id: counts up over the life of the listener.
        session: facts about the client.
        peer: ``host:port``, for logs.
        unsent: bytes of answers that the peer has not read yet.
    """

    def __init__(
        self,
        number: int,
        sock: socket.socket,
        session: ClientInfo,
        service: Service,
        shared: ListenerContext,
        tls: TlsConnection | None = None,
    ) -> None:
        self.id = number
        self.session, self.peer = session, session.peer
        self.unsent = 0
        self._socket, self._service, self._shared, self._limits = sock, service, shared, shared.limits
        self._tls = tls
        self._outbox = Outbox(tls)
        self._receiver = Receiver(sock, shared, self._outbox, tls)
        self._answers: deque[PendingAnswer] = deque()
        self._waiting = trio.lowlevel.ParkingLot()
        """Tasks that check again when an answer was filled or sent, or the reader was asked to hold or go on."""
        self._full = trio.Event()
        """The socket accepts no more for now."""
        self._corked = False
        """Answers wait for the answers to the other requests that arrived in the same read."""
        self._agreed = tls is None
        """The TLS handshake is done, or there is none."""
        self._was_active = False
        """An answer was given since the last `look`."""
        self.active_at = trio.current_time()
        """The time of the last `look` at which that was so, or of the beginning."""
        self._draining = False
        self._unhanded: Iterator[Buffer] | None = None
        """Frames that have arrived and wait until they may be passed to the service."""
        self._held = False
        self._passing = 0
        """Bytes of a frame that is passed on piece by piece, and that have not arrived yet."""
        self._paused = False
        """The service takes no more of them for now."""
        self._counted = 0
        """Bytes of incomplete small frames that the budget has counted."""
        self._lost = False
        """The peer reads no more answers; the bytes it sent are still read."""
        self._ends = False
        """The connection is being closed: unsent answers are dropped."""
        self._over = False
        self._scope = trio.CancelScope()
        self._reading = trio.CancelScope()
        self._why = "closed by the peer"

    @property
    def is_secured(self) -> bool:
        """The TLS handshake is done, or there is none."""
        return self._agreed

    @property
    def is_idle(self) -> bool:
        """No request waits for its answer, and the peer has read all answers."""
        return not (self._answers or self.unsent)

    def identified(self) -> None:
        """Tell the service that the client has authenticated, or need not."""
        self._service.identified(self)

    def hold(self, held: bool) -> None:
        """With ``True``, pass no more requests to the service, until this is called with ``False``."""
        self._held = held
        self._waiting.unpark_all()

    def limit_frames(self, size: int | None = None) -> None:
        """Refuse requests above ``size`` bytes from now on; ``None``: above `ListenerLimits.max_frame`."""
        self._receiver.limit_frames(self._limits.max_frame if size is None else size)

    def pause(self, paused: bool) -> None:
        """With ``True``, read no more of a frame that is passed on piece by piece; ``False`` ends that."""
        if paused != self._paused:
            self._paused = paused
            self._waiting.unpark_all()

    async def room(self, limit: int) -> None:
        """Wait until at most ``limit`` bytes of answers are unsent, or the connection has ended."""
        while self.unsent > limit and not self._over:
            await self._waiting.park()

    def close(self, why: str) -> None:
        """Close without another answer; ``why`` is logged."""
        self._why = why
        self._cancel()

    def turn_out(self, why: str) -> None:
        """Close and log a warning; similar warnings are counted."""
        self._shared.traffic.refused(Refusal.REQUEST)
        self._shared.complain(f"client disconnected: {why}", self.session)
        self.close(why)

    def _cancel(self) -> None:
        self._ends = True
        self._scope.cancel()

    def drain(self) -> None:
        """Read no more, pass on and answer all requests that have arrived, then close."""
        self._draining = True
        self._reading.cancel()
        self._flush()

    def answered(self, answer: PendingAnswer, parts: tuple[Part, ...], left: int) -> None:
        """Fill a position in the order of answers; further calls bring the ``left`` bytes that are missing."""
        if self._over:
            return
        if self._lost:
            parts = ()
        size = sum(map(len, parts))
        answer.fill(parts, left)
        self._count_unsent(size)
        if not self._corked:
            self._was_active = True
            self._flush()

    def _count_unsent(self, change: int) -> None:
        self.unsent += change
        self._shared.count_unsent(self, change)

    def look(self, now: float) -> None:
        """Close the connection if the peer has been silent for too long, or is gone; called now and then."""
        if self._receiver.was_active() or self._was_active:
            self._was_active, self.active_at = False, now
        if not self._receiver.is_waiting:
            self._receiver.rest()
            self._waiting.unpark_all()  # see `_unread`
        elif self._receiver.stalled(now) >= self._limits.write and self._shared.frames.is_wanted:
            self.close(f"sent too little of a request in {self._limits.write:g} s, while others wait for its memory")
        elif (silent := now - self.active_at) >= self._limits.write:
            if self._passing:  # the service has a part of the request, and waits for the rest
                self.close(f"sent nothing of a request for {silent:.0f} s")
            elif silent >= self._limits.idle and self.is_idle:  # otherwise it waits, or reads
                self.close(f"idle for {silent:.0f} s")

    async def run(self) -> None:
        log.debug("connected", extra={"peer": self.peer})
        try:
            with self._contained():
                if not self._agreed:
                    self._shared.newcomers.arrived(self)
                self._service.connected(self)
                self._shared.newcomers.begun(self)
                try:
                    with self._scope:
                        async with trio.open_nursery() as nursery:
                            nursery.start_soon(self._half, self._read)
                            nursery.start_soon(self._half, self._write)
                finally:
                    self._service.disconnected(self)
        finally:
            self._end()

    async def _half(self, work: Callable[[], Awaitable[None]]) -> None:
        """Read or write until the connection ends; contains every exception."""
        with self._contained():
            await work()
        self._cancel()

    @contextmanager
    def _contained(self) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        """Close the connection, so that a bug of the service does not affect other connections."""
        if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
            text = f"the process may open no more files: {error!r:.200} closed its connection"
        else:
            text = f"a bug, please report it: {error!r:.200} closed its connection"
        if self._shared.complaints.is_new(trio.current_time(), self.session.peer_host, text):
            log.error("%s", text, exc_info=error, extra={"peer": self.peer})
        self.close("internal error")

    def _end(self) -> None:
        self._over = True
        self._shared.newcomers.left(self)
        self._shared.established.left(self)
        self._count_unsent(-self.unsent)
        self._release()
        self._count_small(0)
        for answer in self._answers:
            answer.abandon()
        self._answers.clear()
        self._waiting.unpark_all()
        log.debug("disconnected", extra={"peer": self.peer, "why": self._why})
        self._say_good_bye()
        trio.lowlevel.notify_closing(self._socket)
        self._outbox.clear()
        hang_up(self._socket)
        self._socket.close()

    def _say_good_bye(self) -> None:
        """With TLS, tell the peer that this is the end, or why it is refused, if it reads."""
        if self._tls is not None and not self._outbox.full:
            with self._contained(), suppress(OSError):
                self._outbox.finish(self._tls.finish())
                self._outbox.write(self._socket)

    # -- requests

    async def _read(self) -> None:
        try:
            with self._reading:
                await self._read_to_the_end()
                return
            if self._unhanded is not None:
                await self._hand_out(self._unhanded)
        except (RemoteProtocolError, AuthenticationFailed) as error:
            self._uncork()  # earlier requests get their answers
            self._shared.traffic.refused(Refusal.REQUEST if self._agreed else Refusal.TLS)
            self._shared.complain(f"connection refused: {error}", self.session)
            self.close(str(error))
        except ConnectionLost as error:  # TLS ended, or the peer vanished while its request waited for memory
            self.close(str(error))
        await trio.sleep_forever()  # the connection drains: the writer ends it

    async def _read_to_the_end(self) -> None:
        while (frames := await self._receiver.frames()) is not None:
            if self._tls is not None and not self._agreed and self._tls.agreed:
                self._agreed = True
                self.session.presents(self._tls.subject)
                self._shared.newcomers.secured(self)
            await self._hand_out(frames)
            if self._tls is None and (start := self._receiver.begun) is not None and await self._begins(start):
                if not await self._pass_on():
                    return
            elif (size := self._receiver.needs) > self._receiver.granted:
                await self._reserve(size)
            self._count_small(self._receiver.pending)

    async def _hand_out(self, frames: Iterator[Buffer]) -> None:
        turn_ends = time.perf_counter() + _TURN_SECONDS
        for frame in frames:
            if self._ends:  # the last request closed the connection: later ones are not started
                break
            full = len(self._answers) >= self._limits.pipeline or self._must_wait()
            if full or time.perf_counter() > turn_ends:
                self._unhanded = itertools.chain((frame,), frames)
                self._uncork()
                await trio.lowlevel.checkpoint()  # other tasks get their turn
                await self._turn_comes()
                turn_ends = time.perf_counter() + _TURN_SECONDS
            self._unhanded = None
            if self._receiver.granted:
                self._release()
            self._corked = True
            answer = self._pending(frame)
            self._answers.append(answer)
            self._service.request(self, frame, answer)
        self._uncork()
        if time.perf_counter() > turn_ends:
            self._receiver.end_turn()

    def _pending(self, frame: Buffer, size: int | None = None) -> PendingAnswer:
        """The answer to a request of ``size`` bytes, of which ``frame`` may only be the beginning."""
        api = self._shared.traffic.requested(frame)
        if not self._shared.observers:
            return PendingAnswer(self, api)
        return ObservedAnswer(self, api, self._shared, frame, len(frame) if size is None else size)

    async def _begins(self, start: bytes) -> bool:
        """Have the service decide over a large frame that has begun; return whether it is passed on piece by piece."""
        size = self._receiver.under_way
        if not self._service.begins_passage(self, size, start):
            return False
        if len(self._answers) >= self._limits.pipeline or self._must_wait():
            await self._turn_comes()
            if self._ends or not self._service.begins_passage(self, size, start):
                return False
        answer = self._pending(start, size)
        self._answers.append(answer)
        size, start = self._receiver.take_begun()
        self._passing = size - len(start)
        self._corked = True
        self._service.begin(self, size, start, answer)
        self._uncork()
        return True

    async def _pass_on(self) -> bool:
        """Pass on the rest of a frame, as fast as the service takes it; return whether the peer has sent it all."""
        while self._passing:
            while self._paused:
                await self._unread()
            if (data := await self._receiver.piece(self._passing)) is None:
                return False
            self._passing -= len(data)
            self._service.go_on(self, data)
        return True

    async def _turn_comes(self) -> None:
        """Wait until the service may have the next request."""
        while self._must_wait():
            if self._lost:
                self._service.lost(self)
                if not self._held:
                    return
            await self._unread()
            # A peer that only closed its side may still take answers, as with Apache Kafka. Where all were taken, and
            # the service waits for something, the connection ends as it would without a request behind that.
            if self._held and not (self._lost or self.unsent) and _has_ended(self._socket):
                self._lose_peer()

    def _count_small(self, size: int) -> None:
        """Count the bytes of an incomplete small frame."""
        if size != self._counted:
            self._shared.count(self, size - self._counted)
            self._counted = size

    def _release(self) -> None:
        """Release the memory reserved for a large request, which now belongs to the service."""
        self._shared.frames.give(self)
        self._receiver.grant(0)
        self._receiver.rest()

    async def _reserve(self, size: int) -> None:
        """Wait for the memory that the current large request needs to continue."""
        memory = self._shared.frames
        memory.take(self, size, self._waiting.unpark_all)
        while memory.has(self) < size:
            await self._unread()
            memory.give_out()
            if self._lost:  # the rest of the frame will never arrive
                raise ConnectionLost("the peer is gone")
        self._receiver.grant(size)

    async def _unread(self) -> None:
        """Wait until `_waiting` is woken; `look` wakes it, too, while the peer is not read.

        Reading would report the end of the input only behind all bytes. The system reports a reset at once, and a
        vanished peer resets the connection when it gets data.
        """
        await self._waiting.park()
        if self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self._lose_peer()

    def _lose_peer(self) -> None:
        """Drop all answers, now and from now on; the reader continues to the end of the input."""
        self._lost = True
        self._why = "the peer is gone"
        for answer in self._answers:
            if answer.parts is not None:
                answer.release()
        self._outbox.clear()
        self._count_unsent(-self.unsent)
        self._waiting.unpark_all()
        self._close_if_drained()

    def _close_if_drained(self) -> None:
        answers = len(self._answers) - bool(self._passing)  # an incomplete request gets no answer
        if self._draining and not answers and self._unhanded is None:
            self.close("the listener closes")

    def _must_wait(self) -> bool:
        """Whether no more requests are passed to the service for now."""
        return self._held or (
            # Apache Kafka, too, executes the requests of a peer that has gone (Selector.java, `closingChannels`). Its
            # answers are dropped and take no memory, so only the service may delay it.
            not self._lost
            and (
                len(self._answers) >= self._limits.pipeline
                or self.unsent > self._limits.unsent
                or self._shared.is_greedy(self.unsent)
            )
        )

    # -- answers

    def _uncork(self) -> None:
        if self._corked:
            self._service.handed_out(self)
            self._corked = False
        self._flush()

    def _flush(self) -> None:
        """Write the answers that are ready, as far as the socket accepts them now."""
        if self._ends or self._over:
            return
        try:
            while self._answers and (parts := self._answers[0].parts) is not None:
                answer = self._answers[0]
                answer.release()
                self._outbox.append(*parts)
                if answer.left:
                    break
                self._answers.popleft()
            if self._outbox.full:
                self._waiting.unpark_all()
            else:
                self._give()
        except Exception as error:
            self._failed(error)

    def _give(self) -> None:
        try:
            done = self._outbox.write(self._socket)
        except OSError:
            self._lose_peer()
            return
        except Unreadable as error:
            self._shared.complain(text := f"a response cannot be read: {error}", self.session)
            self.close(text)
            return
        self._count_unsent(-done)
        self._shared.traffic.wrote(done)
        if self._waiting:
            self._waiting.unpark_all()
        if self._outbox.full:
            self._full.set()
        else:
            self._close_if_drained()

    async def _write(self) -> None:
        """Write the rest that the socket did not accept at once."""
        while True:
            await self._full.wait()
            self._full = trio.Event()
            try:
                await write_on(self._outbox, self._socket, self._limits.write, self._give)
            except trio.TooSlowError:
                self.close(f"the peer read no response for {self._limits.write:g} s")
                return


def _has_ended(sock: socket.socket) -> bool:
    """Whether the peer sends no more, though bytes of it may be unread (which hide that outside of Linux)."""
    if hasattr(select, "POLLRDHUP"):
        poll = select.poll()
        poll.register(sock, select.POLLRDHUP)
        return bool(poll.poll(0))
    try:
        return not sock.recv(1, socket.MSG_PEEK)
    except OSError:
        return False
