"""The way to upstream, and what is known of it.

link         a connection
control      what the proxy asks for itself: nodes, topics, producer ids
cluster      nodes and leaders
batches      parts of clients' batches, and the batches that are made of them
streams      what one producer sends to one partition
producer     a producer id, with its streams and connections
lent         producers of the proxy's own
connections  of producers to nodes
delivery     all that is under way
"""
