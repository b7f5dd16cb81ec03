"""The client's view of the cluster: nodes, topics, leaders, coordinators."""
