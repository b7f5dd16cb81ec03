"""The coordinator of consumer groups (KIP-848): the broker assigns the partitions, and members follow its answers.

consumer_groups      `ConsumerGroups`: all groups of this kind, and the heartbeats of their members
classic_members      `ClassicMembers`: members of such a group that still use the classic protocol
conversions          turns a classic group into a consumer group, and back
consumer_group       `ConsumerGroup`: one group; `Change`: its change by a request, until it is stored
epoch_group          `EpochGroup`, `GroupChange`: the common part of consumer groups and share groups
member               `AssignedMember`: one member, with its present partitions and the partitions to give up
reconciliation       leads a member to its target assignment, step by step
target               computes the target assignment of a group
assignors            ``uniform`` and ``range``
subscriptions        finds the topics of subscriptions, by name and by pattern
consumer_group_log   stores the groups as records of `__consumer_offsets`
epoch_group_log      `restored`, `record`: the common part for both kinds of groups

To change the effect of a heartbeat, open consumer_groups.py; to change when a member gets a partition, open
reconciliation.py; to change how partitions are divided, open assignors.py.
"""
