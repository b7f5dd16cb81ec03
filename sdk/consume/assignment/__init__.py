"""The partitions of a consumer, from its subscription to the end of its block, with or without a group.

subscription  `Subscription`: the topics to read, by name or by pattern
resuming      `Resuming`: starts assigned partitions at the group's committed offsets
notices       `Notices`: calls the user's listener about partitions that are assigned, revoked or lost
committing    `Committing`: decides which offsets are committed, and when
leaving       `Leaving`: ends the block

To change where a new partition starts, open subscription.py; to change auto commit, open committing.py. The member
itself, and its requests, are in `ottla.sdk.group`.
"""
