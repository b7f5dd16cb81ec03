"""The transaction coordinator: epochs and transactions, and the log that stores them.

transaction_coordinator  `TransactionCoordinator`: the requests of clients, and timeouts
transaction_markers      `TransactionMarkers`: writes the markers to partitions, and settles offsets
hanging_transactions     `HangingTransactions`: at the start, transactions that a partition or the coordinator has lost
transaction_metadata     `TransactionMetadata`: the state of one transactional id, as a table
transaction_log          `TransactionLog`: stores it as records of `__transaction_state`

To change a state or an epoch, open transaction_metadata.py; to change when a transaction ends, open
transaction_coordinator.py. The open transactions of a partition are in `ottla.brokerlite.machines.partitions`.
"""
