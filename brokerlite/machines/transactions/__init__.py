"""The transaction coordinator: producer ids, epochs and transactions, and the log that stores them.

transaction_coordinator  `TransactionCoordinator`: the requests of clients, timeouts, markers
transaction_metadata     `TransactionMetadata`: the state of one transactional id, as a table
transaction_log          `TransactionLog`: stores it as records of `__transaction_state`

To change a state or an epoch, open transaction_metadata.py; to change when a transaction ends, open
transaction_coordinator.py. The open transactions of a partition are in `ottla.brokerlite.machines.partitions`.
"""
