"""Clients that log in to upstream through the proxy, which sends their records as their users: mode `forward`.

Rules:
- A node serves no request before a login.
- Records come on connections of the user who has sent them, also after a restart of the proxy, which then waits until
  this user has logged in again.
- Another cluster may get a node's address, some seconds after the node is down. Only the proxy itself sends it
  requests, and only to ask which cluster it is.

Each client is a user of its own, by its name.
"""

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import trustme

from ottla.codec.apis.api_versions import ApiVersionsRequest
from ottla.codec.apis.metadata import MetadataRequest, MetadataResponse
from ottla.codec.apis.produce import ProduceRequest
from ottla.codec.apis.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.codec.apis.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.codec.records import parse_batch
from ottla.proxy.config import ProxyConfig
from ottla.proxy.listeners import ClientMode, ProxyListener
from ottla.sasl import Plain
from ottla.sasl_server.settings import SaslSettings
from ottla.tls import ServerTLS
from tests import tls
from tests.sim.network import Link, Reply
from tests.sim.proxy.ledger import name_of
from tests.sim.users import Violation

_SENDER = re.compile(rb"[a-z]+[0-9]+")
"""The name of a process, with which the values of its records begin."""
BEFORE = "the proxy sends a request before it has logged in"
ANOTHER_USER = "records come as another user"
GIVEN_AWAY = "another cluster gets the credentials of a client, or a request"
OWN = Plain("proxy", "secret-of-the-proxy")
HANDSHAKE, AUTHENTICATE = 1, 1
"""The versions in which clients log in."""


@cache
def _certificate() -> ServerTLS:
    return tls.serving(trustme.CA(), "proxy")


def forwarding(config: ProxyConfig) -> ProxyConfig:
    """The configuration of a proxy whose only listener forwards; TLS has no effect on machines."""
    listener = ProxyListener(
        protocol="SASL_SSL",  # type: ignore[arg-type]
        host="proxy",
        port=9092,
        mode=ClientMode.FORWARD,
        tls=_certificate(),
        sasl=SaslSettings(mechanisms=("PLAIN",), relayed=True),
    )
    return replace(
        config, listen=ProxyConfig.listen, listeners=(listener,), upstream_config="upstream.properties", sasl=OWN
    )


def login(user: str) -> tuple[tuple[Any, int], ...]:
    """The requests by which a client logs in, with their versions."""
    token = f"\0{user}\0secret-of-{user}".encode()
    return (
        (SaslHandshakeRequest(mechanism="PLAIN"), HANDSHAKE),
        (SaslAuthenticateRequest(auth_bytes=token), AUTHENTICATE),
    )


class Users:
    """Lets users in at the nodes, and checks as whom requests come.

    Attributes:
        foreign: the nodes whose addresses belong to another cluster.
    """

    def __init__(self) -> None:
        self.foreign: set[int] = set()
        self._of: dict[Link, str] = {}

    def serve(self, link: Link, version: int, message: Any, reply: Reply, close: Callable[[str], None]) -> bool:
        """Serve the requests of a login; ``False`` leaves the request to the cluster."""
        match message:
            case ApiVersionsRequest():
                return False
            case SaslHandshakeRequest():
                reply(SaslHandshakeResponse(error_code=0, mechanisms=("PLAIN",)))
            case SaslAuthenticateRequest():
                _, user, _ = bytes(message.auth_bytes).decode().split("\0")
                if link.node in self.foreign and user != OWN.username:
                    raise Violation(GIVEN_AWAY, f"the credentials of {user}")
                self._of[link] = user
                reply(SaslAuthenticateResponse(error_code=0, error_message=None, auth_bytes=b""))
            case MetadataRequest(topics=()) if link.node in self.foreign:
                reply(MetadataResponse(brokers=(), cluster_id="another", controller_id=-1, topics=()))
            case _ if link.node in self.foreign:
                raise Violation(GIVEN_AWAY, type(message).__name__)
            case _ if link not in self._of:
                raise Violation(BEFORE, type(message).__name__)
            case _:
                return False
        return True

    def sent(self, link: Link, message: Any) -> None:
        """Check the records in a request."""
        if not isinstance(message, ProduceRequest):
            return
        user = self._of.get(link, "nobody")
        for topic in message.topic_data:
            for data in topic.partition_data:
                for record in parse_batch(data.records or b"").records():
                    value = name_of(record)
                    sender = _SENDER.match(value)
                    if sender is None or sender[0].decode() != user:
                        raise Violation(ANOTHER_USER, f"{user} for {value!r}")
