"""HTTP requests with one deadline for the whole exchange, however slowly its parts arrive; they block.

Rules:
- Redirects are not followed: they would lead to another host.
- Only the system's name look-up has its own timeouts.
"""

import io
import socket
import ssl
import time
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any
from urllib.error import HTTPError
from urllib.request import HTTPHandler, HTTPRedirectHandler, HTTPSHandler, OpenerDirector, Request, build_opener

from ottla.tls import TLS

_MOST = 2**20
"""The most bytes of a response."""


def opener(tls: TLS | None, until: float) -> OpenerDirector:
    """Opens requests that end at ``until``, a time of `time.monotonic`.

    Args:
        tls: has the CA of the host, if it is not one of the system's.
    """
    context = tls.context() if tls else ssl.create_default_context()
    return build_opener(_Http(until), _Https(until, context), _NoRedirects())


def fetch(url: str, tls: TLS | None, seconds: float) -> bytes:
    """The body behind a URL.

    Raises:
        OSError: it cannot be fetched, or not in time.
    """
    try:
        with opener(tls, time.monotonic() + seconds).open(Request(url), timeout=seconds) as answer:
            return read(answer)
    except HTTPError as error:
        error.close()
        raise OSError(f"HTTP {error.code}") from None
    except HTTPException as error:
        raise OSError(type(error).__name__) from None


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


class _Http(HTTPHandler):
    """Makes connections that end at ``until``, a time of `time.monotonic`."""

    def __init__(self, until: float) -> None:
        super().__init__()
        self._until = until

    def http_open(self, req: Request) -> HTTPResponse:
        return self.do_open(partial(_Connection, self._until), req)


class _Https(HTTPSHandler):
    """Like `_Http`, over TLS."""

    def __init__(self, until: float, context: ssl.SSLContext) -> None:
        super().__init__()
        self._until, self._tls = until, context

    def https_open(self, req: Request) -> HTTPResponse:
        return self.do_open(partial(_SecureConnection, self._until), req, context=self._tls)


class _Connection(HTTPConnection):
    """Bounds the attempts at all addresses of the host together, and every read of a response, also from a proxy."""

    def __init__(self, until: float, host: str, **options: Any) -> None:
        super().__init__(host, **options)
        self._until = until
        self._create_connection = self._connected
        self.response_class = partial(_Response, until)  # type: ignore[assignment]

    def connect(self) -> None:
        super().connect()
        self.sock.settimeout(_left(self._until))

    def _connected(self, address: tuple[str, int], *_: object) -> socket.socket:
        """Like `socket.create_connection`, whose timeout applies to each address separately."""
        failed = OSError("the host name has no address")
        for family, kind, protocol, _name, found in socket.getaddrinfo(*address, type=socket.SOCK_STREAM):
            connection: socket.socket | None = None
            try:
                connection = socket.socket(family, kind, protocol)
                connection.settimeout(_left(self._until))
                connection.connect(found)
                connection.settimeout(_left(self._until))
            except OSError as error:  # for example on a machine without IPv6
                if connection is not None:
                    connection.close()
                failed = error
            else:
                return connection
        raise failed


class _SecureConnection(_Connection, HTTPSConnection):
    """`HTTPSConnection` connects by `HTTPConnection`; its handshake is one call, within the socket's timeout."""


class _Response(HTTPResponse):
    """Reads no byte after ``until``: a socket's timeout applies to each read, which may bring a single byte."""

    def __init__(self, until: float, connection: socket.socket, *args: Any, **options: Any) -> None:
        super().__init__(connection, *args, **options)
        self.fp = io.BufferedReader(_Reads(until, connection, self.fp.detach()))


class _Reads(io.RawIOBase):
    def __init__(self, until: float, connection: socket.socket, raw: io.RawIOBase) -> None:
        super().__init__()
        self._until, self._connection, self._raw = until, connection, raw

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self._connection.settimeout(_left(self._until))
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


def _left(until: float) -> float:
    """Seconds until ``until``; raises `TimeoutError` if there are none left."""
    if (left := until - time.monotonic()) <= 0:
        raise TimeoutError
    return left


def read(answer: HTTPResponse | HTTPError) -> bytes:
    """The body."""
    body = b""
    while part := answer.read1(2**16):
        body += part
        if len(body) > _MOST:
            raise OSError(f"the response has more than {_MOST} bytes")
    return body
