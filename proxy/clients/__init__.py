"""Handles clients' connections and requests.

client_session    a client's connection: its requests and responses
carried           the APIs and versions that the proxy offers
routed_topics     topics with a rule, and their metadata
admission         checks who may send to a rewritten topic, and with which producer
batches           clients' batches under way
opening           checks batches, reads their records, sorts them by partition
windows           recognises retries
producers         the producer ids of clients
record_set_queue  the queue of record sets
rewriter          moves the records of a client's batch to the partitions of their keys, and answers the client
transactions      AddPartitionsToTxn, EndTxn
observer          counts keys
buffered          counts the buffered bytes of each client
"""
