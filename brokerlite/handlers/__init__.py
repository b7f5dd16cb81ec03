"""What the broker serves: one file per API, `SERVED` finds them by key.

A handler is a plain function of the broker and the call; its file's docstring says what each version changes. The
versions are those of Apache Kafka 4.3. Adding an API is one file here and one line below; `../SKIPPED.md` lists what
is left out.
"""

from ottla.brokerlite.handlers import (
    api_versions,
    create_topics,
    delete_topics,
    describe_configs,
    fetch,
    find_coordinator,
    init_producer_id,
    list_offsets,
    metadata,
    produce,
)
from ottla.brokerlite.machines.core import Served

SERVED: dict[int, Served] = {
    0: Served(3, 13, produce.handle, advertised_from=0),
    1: Served(4, 18, fetch.handle),
    2: Served(1, 11, list_offsets.handle),
    3: Served(0, 13, metadata.handle),
    10: Served(0, 6, find_coordinator.handle),
    18: Served(0, 4, api_versions.handle),
    19: Served(2, 7, create_topics.handle),
    20: Served(1, 6, delete_topics.handle),
    22: Served(0, 5, init_producer_id.handle),
    32: Served(1, 4, describe_configs.handle),
}
"""API key -> its versions and handler."""
