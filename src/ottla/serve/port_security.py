"""How a listener secures its connections."""

from dataclasses import dataclass

from ottla.sasl_server.server import SaslServer
from ottla.subject_mapping import SubjectMapping
from ottla.tls import ServerTLS


@dataclass(frozen=True, kw_only=True)
class PortSecurity:
    """The name of a listener, its TLS and its SASL.

    Attributes:
        name: as in `ClientInfo.listener`.
        subjects: how the subject of a client's certificate becomes its principal. With SASL it does not.
    """

    name: str = "PLAINTEXT"
    tls: ServerTLS | None = None
    subjects: SubjectMapping | None = None
    sasl: SaslServer | None = None


PLAINTEXT = PortSecurity()
