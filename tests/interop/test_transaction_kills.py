"""kill -9 of brokerlite under the load of transactional clients: `tests.interop.kills` says what must hold."""

from pathlib import Path

import pytest

from tests.interop.kills import Storm

pytestmark = pytest.mark.slow


@pytest.mark.timeout(300)
def test_transactions_live_through_kills_of_the_broker(tmp_path: Path) -> None:
    with Storm(tmp_path, seed=1) as storm:
        storm.run(kills=10, seconds=30)
        assert storm.kills, "in thirty seconds"
        storm.check()
        storm.broker.stop()
    assert "Traceback" not in storm.broker.log.read_text()
