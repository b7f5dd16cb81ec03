"""Facts about the other side of a connection; every request comes with them."""

import math
from dataclasses import dataclass

from ottla.addresses import format_address
from ottla.errors import AuthenticationFailed
from ottla.subject_mapping import SubjectMapping

ANONYMOUS = "User:ANONYMOUS"
"""Kafka's principal of a client that has not authenticated."""


@dataclass(slots=True, kw_only=True)
class ClientInfo:
    """One client's connection to a listener. It has no client id: each request's header has its own.

    Attributes:
        local_host, local_port: the local address to which the client connected.
        peer_host, peer_port: the client's address.
        listener: the listener's name.
        subjects: turns the subject of the client's certificate into its principal; ``None``: it has no effect.
        principal: the client's principal, in Kafka's form ``type:name``.
        awaits_login: the listener requires SASL, and the client has not authenticated yet.
        session_ends_at: when its session of SASL ends, in the loop's seconds; nothing that waits may wait longer.
        certificate_subject: the distinguished name of the client's certificate (``CN=app,O=ottla``), if it has
            presented a trusted one.
        client_software_name, client_software_version: from ApiVersions v3+; empty until then.
    """

    local_host: str
    local_port: int
    peer_host: str
    peer_port: int
    listener: str = "PLAINTEXT"
    subjects: SubjectMapping | None = None
    principal: str = ANONYMOUS
    awaits_login: bool = False
    session_ends_at: float = math.inf
    certificate_subject: str | None = None
    client_software_name: str = ""
    client_software_version: str = ""

    def presents(self, certificate_subject: str | None) -> None:
        """Notice the certificate that the client presented in the TLS handshake; ``None``: none.

        Raises:
            AuthenticationFailed: no rule of `subjects` fits, or the subject is empty.
        """
        self.certificate_subject = certificate_subject
        if self.subjects is not None and certificate_subject is not None:
            # Otherwise the owner would be ANONYMOUS, and might have the rights of local clients in plain text.
            if not certificate_subject:
                raise AuthenticationFailed("the client's certificate has an empty subject, which names no user")
            self.principal = f"User:{self.subjects.name(certificate_subject)}"

    def authenticated(self, principal: str, ends_at: float = math.inf) -> None:
        """Note that the client has authenticated by SASL. Its session ends at ``ends_at``."""
        self.principal, self.awaits_login, self.session_ends_at = principal, False, ends_at

    def runs(self, software: str, version: str) -> None:
        """Notice the client's software, as its ApiVersions request names it."""
        self.client_software_name, self.client_software_version = software, version

    @property
    def peer(self) -> str:
        """The client's ``host:port``, for logs."""
        return format_address(self.peer_host, self.peer_port)
