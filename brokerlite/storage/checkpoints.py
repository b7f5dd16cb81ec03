"""The small text files, in Kafka's formats.

Source: CheckpointFile.java, LeaderEpochCheckpointFile.java, PartitionMetadataFile.java, MetaProperties.java.
"""

import base64
import os
import uuid
from collections.abc import Mapping
from pathlib import Path


def replace(path: Path, text: str) -> None:
    """Write a whole file such that it has either its old content or the new, whatever happens."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(text)
    temporary.replace(path)


def sync(path: Path) -> None:
    """Have the disk hold the content of a file, or the entries of a folder; one that is gone is no matter."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def offsets_text(offsets: Mapping[tuple[str, int], int]) -> str:
    """`recovery-point-offset-checkpoint`: (topic, partition) -> offset."""
    lines = [f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()]
    return "\n".join(("0", str(len(lines)), *lines, ""))


def parse_offsets(text: str) -> dict[tuple[str, int], int]:
    """The opposite of `offsets_text`; lines that do not parse are left out, which costs time and loses nothing."""
    offsets = {}
    for line in text.splitlines()[2:]:
        match line.split():
            case [topic, partition, offset] if partition.isdigit() and offset.isdigit():
                offsets[topic, int(partition)] = int(offset)
    return offsets


def short_id(value: uuid.UUID) -> str:
    """A UUID as Kafka writes it."""
    return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")


def parse_short_id(text: str) -> uuid.UUID:
    return uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))


def partition_metadata_text(topic_id: uuid.UUID) -> str:
    return f"version: 0\ntopic_id: {short_id(topic_id)}"


def leader_epoch_text(epoch: int, start_offset: int) -> str:
    """`leader-epoch-checkpoint` with one epoch and the offset at which it began."""
    return f"0\n1\n{epoch} {start_offset}\n"


def properties_text(properties: Mapping[str, str]) -> str:
    return "".join(f"{key}={value}\n" for key, value in properties.items())


def parse_properties(text: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in text.splitlines() if not line.startswith("#"))
    return {key.strip(): value.strip() for key, equals, value in pairs if equals}
