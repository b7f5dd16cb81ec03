"""The client's view of the cluster: nodes, topics, leaders, coordinators.

cluster           `Cluster`: the nodes, topics and leaders, as data
metadata          `Metadata`: keeps them fresh, and answers callers that wait for a topic
hedged_requests   sends Metadata requests, and asks another node while one gives no answer
failed_addresses  why addresses gave no metadata
questions         the topics that the next Metadata request names
held_topics       the topics whose metadata stays fresh
nodes             the node to ask next
coordinators      `Coordinators`: the node that coordinates a group or a transactional id
client_interface  the interface that these machines need from their client

`ClientCore` creates one of each. Producers, consumers and calls ask `Cluster` who leads a partition, and `Metadata` for
topics that are not known yet.
"""
