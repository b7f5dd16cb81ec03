"""The transaction coordinator: epochs and transactions, and the log that stores them.

transaction_coordinator  `TransactionCoordinator`: the requests of clients
transaction_ends         `TransactionEnds`: outcomes, the writes of markers, and timeouts
transactional_ids        `TransactionalIds`: the ids and their states, each stored before it takes effect
transaction_settings     `TransactionSettings`
transaction_markers      `TransactionMarkers`: writes the markers to partitions, and settles offsets
hanging_transactions     `HangingTransactions`: at the start, transactions that a partition or the coordinator has lost
transaction_metadata     `TransactionMetadata`: the state of one transactional id, as a table
transaction_log          `TransactionLog`: stores it as records of `__transaction_state`

To change a state or an epoch, open transaction_metadata.py; to change when a transaction ends, open
transaction_ends.py. The open transactions of a partition are in `ottla.brokerlite.machines.partitions`.
"""
