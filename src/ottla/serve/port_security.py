"""How a listener secures its connections."""

import logging
import secrets
from dataclasses import dataclass

from ottla.listeners import ListenerConfig
from ottla.sasl_server.server import SaslServer
from ottla.sasl_server.users import Users
from ottla.subject_mapping import SubjectMapping
from ottla.tls import ServerTLS

log = logging.getLogger("ottla.serve")


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
        warn_of_exposed_key(config.tls)
        subjects = None if config.tls is None else config.subjects or SubjectMapping()
        sasl = None if config.sasl is None else SaslServer(config.sasl, users, secrets.token_bytes)
        return cls(name=config.name, tls=config.tls, subjects=subjects, sasl=sasl)


def warn_of_exposed_key(tls: ServerTLS | None) -> None:
    """Log a warning if other users of the machine may read the private key."""
    if tls is not None and (exposed := tls.exposed) is not None:
        log.warning("private key readable by every user of this machine", extra={"file": exposed})


PLAINTEXT = PortSecurity()
