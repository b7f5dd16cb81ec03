"""A member of a consumer group: the rebalance, the assignors, the commits.

membership      the interface between a consumer and its member, whatever the group protocol
classic_member  `ClassicMember`: a member of a classic group, and its way to an assignment
member_states   its states, as a table
joining         JoinGroup and SyncGroup, which wait at the coordinator
leader          divides the partitions, if this member leads the group
assignors/      the assignors of Kafka, and the protocol for your own
heartbeats      show the coordinator that the member is alive
seat            the member's id, generation and channel
goodbye         LeaveGroup
commits         `Commits`: committed offsets, which never go backwards
group_metrics   the metrics of members and commits

`ConsumerCore` creates a member and the consumer's `Commits`, and carries out the member's steps: revoke, receive, lose.
"""
