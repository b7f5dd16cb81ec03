"""Records the answers of Apache Kafka to the requests of `tests.brokerlite.share_scenes`. The quick tests compare them.

Run it with ``python -m tests.brokerlite.record_share_groups`` after a change of the requests, or for a new Kafka.
"""

import gzip
import json
import tempfile
from pathlib import Path

from tests import kafka
from tests.brokerlite.consumer_group_lines import RemoteLine
from tests.brokerlite.share_scenes import sequences

RECORDED = Path(__file__).parents[1] / "wire" / "share_groups.jsonl.gz"
SETTINGS = {
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.assignment.interval.ms": "0",
    "group.coordinator.append.linger.ms": "0",
    "share.coordinator.append.linger.ms": "0",
    "offsets.topic.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        running = kafka.start(Path(folder), 1, SETTINGS)
        line = RemoteLine(running.bootstrap)
        try:
            lines = [json.dumps(each) for each in sequences(line)]
        finally:
            line.close()
            running.stop()
    RECORDED.write_bytes(gzip.compress("".join(f"{each}\n" for each in lines).encode(), mtime=0))


if __name__ == "__main__":
    main()
