"""Connections cut under load, and nodes of Apache Kafka with faults under load; `tests.proxy.storms` describes the
checks.

The storm of kills is in `test_journal`. The storm with nodes runs in a process of its own: the witnesses' library is in
C, and its crash must not end the whole test run.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import WHOLE
from tests.proxy.cuts import Cuts, Leg

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.deep


@pytest.mark.parametrize("leg", ["client", "upstream"])
def test_no_producer_notices_cut_held_and_half_closed_connections(tmp_path: Path, leg: Leg) -> None:
    with Cuts(tmp_path, leg, seed=1) as storm:
        storm.run(strikes=15, seconds=WHOLE)
        assert all(storm.wires.done.values()), storm.wires.done
        storm.check()


def test_no_producer_notices_that_nodes_of_kafka_are_broken() -> None:
    command = [sys.executable, "-m", "tests.proxy.nodes", "--seconds", "30"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=WHOLE)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-5000:]}"
