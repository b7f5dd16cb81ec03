"""A member of a consumer group: the rebalance, the assignors, the commits.

protocol_choice         makes the member that speaks the protocol of the options, or chooses one
membership              the interface between a consumer and its member, whatever the group protocol
classic_member          `ClassicMember`: a member of a classic group, and its way to an assignment
member_states           its states, as a table
joining                 JoinGroup and SyncGroup, which wait at the coordinator
offered                 `OfferedAssignors`: the member's subscriptions, and the leader's assignment
leader                  divides the partitions, if this member leads the group
assignors/              the assignors of Kafka, and the protocol for your own
heartbeats              show the coordinator that the member is alive
seat                    the member's id, generation and channel
consumer_group_member   `ConsumerGroupMember`: a member whose coordinator assigns the partitions (KIP-848)
consumer_member_states  its states, as a table
heartbeat_fields        its heartbeats: all fields, or only the changed ones
assigned_topics         the names of the topics in its assignment

owned_partitions        the partitions of any member, and the changes that its user has to learn of
coordinator_trouble     a member's failed requests
goodbye                 tells the coordinator that a member leaves
commits                 `Commits`: committed offsets, which never go backwards
offset_commits          `OffsetCommits`: OffsetCommit, and what its errors mean
commit_queue            `CommitQueue`: the commits that are not acknowledged; `Assignment`: the offsets of a partition
group_metrics           the metrics of members and commits

`ConsumerCore` creates a member and the consumer's `Commits`, and acts on the member's changes: revoke, receive, lose.
"""
