"""How a listener secures its connections."""

import secrets
from dataclasses import dataclass

from ottla.listeners import ListenerConfig
from ottla.sasl_server.server import SaslServer
from ottla.sasl_server.users import Users
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

    @classmethod
    def of(cls, config: ListenerConfig, users: Users) -> "PortSecurity":
        """The security of a configured listener; ``users``: those who log in with a password.

        Raises:
            ConfigurationError: the keys for OAUTHBEARER cannot be read, or joserfc is missing.
        """
        subjects = None if config.tls is None else config.subjects or SubjectMapping()
        sasl = None if config.sasl is None else SaslServer(config.sasl, users, secrets.token_bytes)
        return cls(name=config.name, tls=config.tls, subjects=subjects, sasl=sasl)


PLAINTEXT = PortSecurity()
