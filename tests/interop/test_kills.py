"""kill -9 of brokerlite under the load of other clients; `tests.interop.kills` describes the checks."""

from pathlib import Path

import pytest

from tests.interop.kills import LOADS

pytestmark = pytest.mark.deep


@pytest.mark.parametrize("load", LOADS)
def test_what_clients_were_told_lives_through_kills_of_the_broker(tmp_path: Path, load: str) -> None:
    with LOADS[load](tmp_path, seed=1) as storm:
        storm.run(kills=5, seconds=30)
        assert storm.kills, "no kill in thirty seconds"
        storm.check()
        storm.broker.stop()
    assert "Traceback" not in storm.broker.log.read_text()
