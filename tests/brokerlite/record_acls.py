"""Records the responses of Apache Kafka to the requests of `tests.brokerlite.acl_questions`, for the quick tests.

Run it with ``python -m tests.brokerlite.record_acls`` after a change of the requests, or for a new Kafka.
"""

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests import kafka
from tests.brokerlite.acl_questions import MECHANISM, PASSWORD, SCENES, SCENES_IF_NONE, USERS, AclsRemote, answers

RECORDED = Path(__file__).parents[1] / "wire" / "acls.jsonl"
_USERS = " ".join(f"user_{user}='{PASSWORD}'" for user in USERS)
SETTINGS = {
    "listener.name.bare.sasl.enabled.mechanisms": MECHANISM,
    "listener.name.bare.plain.sasl.jaas.config": (
        f"org.apache.kafka.common.security.plain.PlainLoginModule required {_USERS};"
    ),
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}


@contextmanager
def kafka_with_acls(home: Path, *, allow_if_none: bool = False) -> Iterator[AclsRemote]:
    """Start Apache Kafka with ACLs and a listener for the users."""
    settings = SETTINGS | {"allow.everyone.if.no.acl.found": str(allow_if_none).lower()}
    running = kafka.start(home, 1, settings, listeners={"BARE": "SASL_PLAINTEXT"})
    try:
        broker = AclsRemote(running.bootstrap, running.listener("BARE"))
        try:
            yield broker
        finally:
            broker.close()
    finally:
        running.stop()


def recorded(home: Path) -> Iterator[str]:
    """The lines of `RECORDED`, from Apache Kafka."""
    with kafka_with_acls(home / "strict") as broker:
        yield from (json.dumps(line) for line in answers(broker, SCENES))
    with kafka_with_acls(home / "open", allow_if_none=True) as broker:
        yield from (json.dumps(line) for line in answers(broker, SCENES_IF_NONE))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        RECORDED.write_text("".join(f"{line}\n" for line in recorded(Path(folder))))


if __name__ == "__main__":
    main()
