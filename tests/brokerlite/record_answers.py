"""Records the responses of Apache Kafka to the requests of `tests.brokerlite.questions`, for the quick tests.

Run it with ``python -m tests.brokerlite.record_answers`` after a change of the requests, or for a new Kafka.
"""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests import kafka
from tests.brokerlite.brokers import Broker, Remote
from tests.brokerlite.questions import SCENES, Asking

RECORDED = Path(__file__).parents[1] / "wire" / "answers.jsonl"


def answers(broker: Broker) -> Iterator[tuple[str, str, Any]]:
    """Each scene, each of its requests, and the summary of the response."""
    for name, scene in SCENES.items():
        for case, said in scene(Asking(broker, name)):
            yield name, case, said


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        running = kafka.start(Path(folder), 1)
        try:
            broker = Remote(running.bootstrap)
            lines = [json.dumps(line) for line in answers(broker)]
        finally:
            running.stop()
    RECORDED.write_text("".join(f"{line}\n" for line in lines))


if __name__ == "__main__":
    main()
