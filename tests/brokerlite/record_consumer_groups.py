"""Records the answers of Apache Kafka to the requests of `tests.brokerlite.consumer_group_walks`, `_scenes` and
`_patterns`.

Run it with ``python -m tests.brokerlite.record_consumer_groups`` after a change of the requests, or for a new Kafka.
"""

import gzip
import json
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests import kafka
from tests.brokerlite.consumer_group_lines import RemoteLine
from tests.brokerlite.consumer_group_patterns import pattern_sequences
from tests.brokerlite.consumer_group_scenes import SCENES
from tests.brokerlite.consumer_group_walks import WALKS, sequences

RECORDED = Path(__file__).parents[1] / "wire" / "consumer_groups.jsonl.gz"
RECORDED_PATTERNS = RECORDED.with_name("consumer_group_patterns.jsonl.gz")
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    # brokerlite computes each assignment at once; otherwise the answers would depend on the time between requests.
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.assignor.offload.enable": "false",
    "group.coordinator.append.linger.ms": "0",
    "offsets.topic.num.partitions": "1",
}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        running = kafka.start(Path(folder), 1, SETTINGS)
        line = RemoteLine(running.bootstrap)
        try:
            _write(RECORDED, sequences(line, range(WALKS), SCENES))
            _write(RECORDED_PATTERNS, pattern_sequences(line))
        finally:
            line.close()
            running.stop()


def _write(path: Path, lines: Iterable[list[Any]]) -> None:
    path.write_bytes(gzip.compress("".join(f"{json.dumps(each)}\n" for each in lines).encode(), mtime=0))


if __name__ == "__main__":
    main()
