"""Checks which broker a data folder belongs to: `.lock` while one runs, and `meta.properties`.

Source: MetaPropertiesEnsemble.java.
"""

import logging
import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from ottla.brokerlite.storage import checkpoints
from ottla.brokerlite.storage.checkpoints import CHECKPOINT, TEMPORARY
from ottla.brokerlite.storage.disk import Disk, Locked
from ottla.brokerlite.storage.state_file import OLD_STATE, STATE, FoundState
from ottla.codec.stored.checkpoints import Properties, build_properties, parse_properties, short_id
from ottla.errors import ConfigurationError, DecodeError

log = logging.getLogger("ottla.brokerlite")

LOCK = ".lock"
META = "meta.properties"
_OURS = frozenset((LOCK, META + TEMPORARY, STATE + TEMPORARY, OLD_STATE + TEMPORARY))
"""Files that an interrupted first start may leave before there is a `broker.json`."""


class MetaProperties(NamedTuple):
    """Holds the content of `meta.properties`."""

    node_id: int
    cluster_id: str
    directory_id: str


def take_lock(disk: Disk, data: Path, *, sync: bool) -> Callable[[], None]:
    """Lock the folder for this process, creating it if it is missing; the returned function unlocks it.

    Raises:
        ConfigurationError: the folder contains other files, or another broker uses it.
    """
    made = [path for path in (data, *data.parents) if not disk.exists(path)]
    disk.make_folder(data)
    if sync:
        for path in made:
            disk.sync_folder(path.parent)
    names = set(disk.names(data))
    if not names & {STATE, OLD_STATE}:
        if META in names:
            raise ConfigurationError(
                f"the data folder {data} was written by Apache Kafka, not by brokerlite; give another folder"
            )
        checkpoints_too = {name for name in names if name.removesuffix(TEMPORARY).endswith(CHECKPOINT)}
        if others := sorted(names - _OURS - checkpoints_too):
            raise ConfigurationError(
                f"the data folder {data} contains other files ({others[0]}); give an empty or new folder"
            )
    try:
        return disk.lock(data / LOCK, f"{os.getpid()}\n")
    except Locked as locked:
        raise ConfigurationError(
            f"the data folder {data} is in use by another broker (process {locked.holder or 'unknown'}); "
            "stop it, or give another folder"
        ) from None


def identify(disk: Disk, data: Path, node_id: int, cluster_id: str | None, found: FoundState) -> MetaProperties:
    """Return the folder's identity: from its files, or from the arguments if they have none.

    Raises:
        ConfigurationError: the folder belongs to another node or cluster.
    """
    known = _read(disk, data / META)
    ours = {"node.id": str(found.node_id), "cluster.id": found.cluster_id} if found.checked else {}
    if any(
        known.get(key, value) != value for key, value in ours.items()
    ):  # unlike broker.json, meta.properties has no checksum
        log.warning("%s is damaged, rewriting it", META, extra={"file": str(data / META)})
        known |= {key: value for key, value in ours.items() if value is not None}
    known_node = known.get("node.id") or (None if found.node_id is None else str(found.node_id))
    known_cluster = known.get("cluster.id") or found.cluster_id
    if known_node not in (None, str(node_id)):
        raise ConfigurationError(
            f"the data folder {data} belongs to node {known_node}, and this is node {node_id}; "
            "give that node id or another folder"
        )
    if known_cluster is not None and cluster_id not in (None, known_cluster):
        raise ConfigurationError(f"the data folder {data} belongs to cluster {known_cluster}, not {cluster_id}")
    directory = known.get("directory.id") or short_id(uuid.uuid4())
    return MetaProperties(node_id, known_cluster or cluster_id or short_id(uuid.uuid4()), directory)


def write_identity(disk: Disk, data: Path, identity: MetaProperties, *, sync: bool) -> None:
    """Write ``identity`` to `meta.properties`, unless it is there already."""
    properties = {
        "version": "1",
        "cluster.id": identity.cluster_id,
        "node.id": str(identity.node_id),
        "directory.id": identity.directory_id,
    }
    if _read(disk, data / META) != properties:
        checkpoints.replace(disk, data / META, build_properties(Properties(properties)), sync=sync)


def _read(disk: Disk, path: Path) -> dict[str, str]:
    try:
        entries = dict(parse_properties(disk.read_file(path)).entries)
    except FileNotFoundError:
        return {}
    except DecodeError as error:
        log.warning("%s is damaged, rewriting it: %s", path.name, error, extra={"file": str(path)})
        return {}
    if "cluster.id" not in entries:
        log.warning("%s is damaged, rewriting it", path.name, extra={"file": str(path)})
    return entries
