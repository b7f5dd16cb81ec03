"""The group coordinator: members, rebalances and committed offsets, and the log that stores them.

groups          `Groups`: all groups, and the requests of their members
joins           `Joins`: the JoinGroup requests
rebalances      `Rebalances`: generations, assignments and sessions, with their timeouts
group           `Group`: one group, its states as a table
group_settings  `GroupSettings`
group_room      `GroupRoom`: how many groups there may be, and how many of one principal
offsets         `Offsets`: the committed offsets of all groups
offset_group    `OffsetGroup`: what offsets ask of a group, whatever its kind
group_log       stores both as records of `__consumer_offsets`

To change how a member joins, open joins.py; to change a rebalance, or when a member times out, open rebalances.py; to
change a state, open group.py; to change who may commit, or how long offsets are kept, open offsets.py.
"""
