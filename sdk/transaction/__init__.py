"""State machines for a producer's transactions.

core                   `TransactionCore`: one transaction, from the beginning of its block to the end
producer_transactions  `ProducerTransactions`: the producer's id, epoch and transactions; states has a table
transaction_end        `TransactionEnd`: sends EndTxn until its outcome is known
participants           `Participants`: the partitions and groups of a transaction
explicit_joining       adds them to a transaction; implicit_joining: version 2
offsets                commits a group's offsets in a transaction
transaction_requests   the requests to the coordinator of the transactional id
asking                 sends a request to a coordinator until its outcome is definite
markers                when the next transaction can begin
fencing                explains why a producer was fenced
transform              `TransformCore`: consume, transform, produce

The faces `Transaction` and `Transform` call the two cores. The sender of `ottla.sdk.produce` asks
`ProducerTransactions` which batches may be sent, under which id and epoch.
"""
