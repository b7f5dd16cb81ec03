"""A member of a consumer group: the rebalance, the assignors, the commits."""
