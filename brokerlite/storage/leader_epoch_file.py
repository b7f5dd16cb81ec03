"""Reads and writes `leader-epoch-checkpoint`, the leader epochs of a partition.

Rules:
- The file is written with the first batch of an epoch: many partitions never get one.
- A missing or damaged file is rebuilt from the log at a start.

Source: LeaderEpochCheckpointFile.java.
"""

import logging
from pathlib import Path

from ottla.brokerlite.machines.partitions.leader_epochs import LeaderEpochs
from ottla.brokerlite.storage import checkpoints
from ottla.brokerlite.storage.disk import Disk
from ottla.codec.stored.checkpoints import build_leader_epochs, parse_leader_epochs
from ottla.errors import DecodeError

log = logging.getLogger("ottla.brokerlite")

_NAME = "leader-epoch-checkpoint"


class LeaderEpochFile:
    """Keeps the leader epochs of one partition and their file.

    Attributes:
        epochs: as far as the broker knows them; the file may lack the current one.
        is_written: the file has all of them.
    """

    def __init__(self, disk: Disk) -> None:
        self.epochs = LeaderEpochs()
        self.is_written = True
        self._disk = disk

    def read(self, folder: Path) -> None:
        """Read the file of the partition in ``folder``."""
        path = folder / _NAME
        try:
            self.epochs = LeaderEpochs(parse_leader_epochs(self._disk.read_file(path)))
        except FileNotFoundError:
            pass
        except DecodeError as error:
            log.warning("leader epochs are damaged, rebuilding them from the log: %s", error, extra={"file": str(path)})

    def begin(self, epoch: int, start_offset: int) -> None:
        """Begin an epoch, which `write` has to store."""
        self.epochs.begin(epoch, start_offset)
        self.is_written = False

    def write(self, folder: Path) -> Path:
        """Write the file, and return its path, which is not flushed to disk yet."""
        path = folder / _NAME
        checkpoints.replace(self._disk, path, build_leader_epochs(self.epochs.entries), sync=False)
        self.is_written = True
        return path
