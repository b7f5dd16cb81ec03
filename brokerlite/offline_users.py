"""Opens the users in the data folder of a stopped broker, for the first user and for forgotten passwords."""

import secrets
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ottla.brokerlite.config import BrokerConfig
from ottla.brokerlite.machines.clock import Clock
from ottla.brokerlite.machines.topics.keyed_log import KeyedLog
from ottla.brokerlite.machines.topics.topics import USER_CREDENTIALS, Topics
from ottla.brokerlite.machines.users.user_credentials import UserCredentials
from ottla.brokerlite.machines.users.user_log import CONFIGS, UserLog
from ottla.brokerlite.storage.data_folder import DataFolder


@contextmanager
def opened_users(data: Path, node_id: int) -> Iterator[UserCredentials]:
    """Open the folder, or create it; close it at the end of the block, with all changes on disk.

    Raises:
        ConfigurationError: a broker uses the folder, or it belongs to another node.
    """
    folder = DataFolder(
        data, index_interval_bytes=BrokerConfig.index_interval_bytes, sync=True, chore=lambda work: work()
    )
    folder.open(node_id, None)
    clean = False
    try:
        clock = Clock.at(time.monotonic(), time.time_ns() // 1_000_000)
        log = KeyedLog(USER_CREDENTIALS, CONFIGS, Topics(folder, {}, uuid.uuid4), clock, lambda partition: None)
        yield UserCredentials(UserLog(log), secrets.token_bytes(32))
        clean = True
    finally:
        if clean:
            folder.close()
        else:
            folder.abandon()
