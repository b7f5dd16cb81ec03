"""What the client knows of the cluster: nodes, topics, leaders, coordinators."""
