"""Records the answers of Apache Kafka to the requests of `tests.brokerlite.consumer_group_walks` and `_scenes`, for the
quick tests.

Run it with ``python -m tests.brokerlite.record_consumer_groups`` after a change of the requests, or for a new Kafka.
"""

import gzip
import json
import tempfile
from pathlib import Path

from tests import kafka
from tests.brokerlite.consumer_group_lines import RemoteLine
from tests.brokerlite.consumer_group_scenes import SCENES
from tests.brokerlite.consumer_group_walks import WALKS, sequences

RECORDED = Path(__file__).parents[1] / "wire" / "consumer_groups.jsonl.gz"
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
            lines = [json.dumps(each) for each in sequences(line, range(WALKS), SCENES)]
        finally:
            line.close()
            running.stop()
    RECORDED.write_bytes(gzip.compress("".join(f"{each}\n" for each in lines).encode(), mtime=0))


if __name__ == "__main__":
    main()
