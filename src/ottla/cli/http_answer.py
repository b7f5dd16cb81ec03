"""A request to an HTTP address of a running server, for `ottla proxy report` and `reload`."""

import http.client

_TIMEOUT = 10.0
"""Seconds for the answer."""


def http_answer(address: str, method: str, path: str) -> tuple[int, str]:
    """Return the status and the body of the answer.

    Raises:
        ConfigurationError: the address is no ``host:port``.
        BrokerUnreachable: no server answers there.
    """
    from ottla.addresses import parse_address
    from ottla.errors import BrokerUnreachable

    host, port = parse_address(address, "HOST:PORT")
    connection = http.client.HTTPConnection(host, port, timeout=_TIMEOUT)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(errors="replace").strip()
    except (OSError, http.client.HTTPException) as error:
        raise BrokerUnreachable(f"no server answers at {address}: {error or type(error).__name__}") from None
    finally:
        connection.close()
