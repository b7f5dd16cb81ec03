"""A member of a consumer group: the rebalance, the assignors, the commits.

membership      the interface between a consumer and its member, whatever the group protocol
classic_member  `ClassicMember`: a member of a classic group, and its way to an assignment
member_states   its states, as a table
joining         JoinGroup and SyncGroup, which wait at the coordinator
offered         `OfferedAssignors`: the member's subscriptions, and the leader's assignment
leader          divides the partitions, if this member leads the group
assignors/      the assignors of Kafka, and the protocol for your own
heartbeats      show the coordinator that the member is alive
seat            the member's id, generation and channel
goodbye         LeaveGroup
commits         `Commits`: committed offsets, which never go backwards
offset_commits  `OffsetCommits`: OffsetCommit, and what its errors mean
commit_queue    `CommitQueue`: the commits that are not acknowledged; `Assignment`: the offsets of a partition
group_metrics   the metrics of members and commits

`ConsumerCore` creates a member and the consumer's `Commits`, and acts on the member's changes: revoke, receive, lose.
"""
