"""The coordinator of share groups (KIP-932), whose members share partitions: several may read the same one.

share_groups      `ShareGroups`: all groups of this kind, and the heartbeats of their members
share_group       `ShareGroup`: one group, its members and its epochs; `ShareChange`: its change, until it is stored
share_assignor    divides the partitions among the members
share_group_log   stores the groups as records of `__consumer_offsets`
refused_requests  answers the requests of the classic protocol, which such groups refuse

To change the effect of a heartbeat, open share_groups.py; to change how partitions are divided, open share_assignor.py.
The records that a member gets are the business of the package share_partitions.
"""
