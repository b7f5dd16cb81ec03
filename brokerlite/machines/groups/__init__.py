"""The group coordinator: members, rebalances and committed offsets, and the log that stores them.

groups        `Groups`: all groups, their timeouts, and the answers that wait for other members
group         `Group`: one group, its states as a table
offsets       `Offsets`: the committed offsets of all groups
offset_group  `OffsetGroup`: what offsets ask of a group, whatever its kind
group_log     stores both as records of `__consumer_offsets`

To change a rebalance, open group.py; to change when a member times out, open groups.py; to change who may commit, or
how long offsets are kept, open offsets.py.
"""
