"""What is known of the other side of a connection; every request comes with it."""

from dataclasses import dataclass

from ottla.addresses import format_address

ANONYMOUS = "User:ANONYMOUS"
"""Kafka's principal of a client that has not said who it is."""


@dataclass(slots=True, kw_only=True)
class Session:
    """One client's connection to a listener. The client id is no part of it: it comes with each request's header.

    Attributes:
        local_host, local_port: the address of this side that the client came by.
        peer_host, peer_port: the client's address.
        listener: the listener's name, as Kafka calls those without SASL: ``PLAINTEXT`` or ``SSL``.
        principal: Kafka's ``type:name`` of who the client is.
        certificate_subject: the distinguished name of the client's certificate (``CN=app,O=ottla``), if it has shown
            one that is trusted.
        client_software_name, client_software_version: what it has said in ApiVersions v3+; empty until then.
    """

    local_host: str
    local_port: int
    peer_host: str
    peer_port: int
    listener: str = "PLAINTEXT"
    principal: str = ANONYMOUS
    certificate_subject: str | None = None
    client_software_name: str = ""
    client_software_version: str = ""

    @property
    def peer(self) -> str:
        """The client's ``host:port``, for logs."""
        return format_address(self.peer_host, self.peer_port)
