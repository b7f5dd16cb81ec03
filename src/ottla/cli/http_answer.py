"""A request to an HTTP address of a running server, for `ottla proxy report` and `reload`."""

import http.client

_TIMEOUT = 10.0
"""Seconds for the answer."""
HEALTH = 18080
"""The port of the examples."""


def http_answer(address: str, method: str, path: str, purpose: str) -> tuple[int, str]:
    """Return the status and the body of the answer; ``purpose``: the option that sets such an address.

    Raises:
        ConfigurationError: the address is no ``host:port``.
        BrokerUnreachable: no server answers there.
    """
    from ottla.addresses import parse_address
    from ottla.errors import BrokerUnreachable, reason

    host, port = parse_address(address, "HOST:PORT", example_port=HEALTH)
    connection = http.client.HTTPConnection(host, port, timeout=_TIMEOUT)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode(errors="replace").strip()
    except http.client.HTTPException:  # bytes of another protocol, or an end without a response
        raise BrokerUnreachable(f"{address} is not a {purpose} address: it does not answer HTTP") from None
    except OSError as error:
        raise BrokerUnreachable(
            f"no server answers at {address}: {reason(error)}: is the server running, and is this its --{purpose} "
            "address?"
        ) from None
    finally:
        connection.close()
