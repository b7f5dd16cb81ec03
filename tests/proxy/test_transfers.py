"""The proxy killed under transactional clients; `tests.proxy.transfers` describes the checks."""

from pathlib import Path

import pytest

from tests.proxy.transfers import ProxiedTransactions


@pytest.mark.deep
def test_transactions_of_other_peoples_clients_live_through_kills_of_the_proxy(tmp_path: Path) -> None:
    with ProxiedTransactions(tmp_path, seed=1) as storm:
        storm.run(kills=10, seconds=40)
        storm.check()
