"""The positions of all assigned partitions: where they start, and what errors do to them.

assigned_positions  `AssignedPositions`: assignment, seeks, resets by policy, truncated and recreated logs, failures
position_lookups    `PositionLookups`: asks leaders where to start, and whether their log still matches (KIP-320)
lookups             builds and reads these requests
changes             `Changes`: collects changed partitions until the next `poll`, and wakes waiters
review              `Review`: decides what each changed partition needs
retries             `Retries`: repeats failed requests, and reports partitions that keep failing

To change where reading starts, open position_lookups.py; to change what ``reset`` does, open assigned_positions.py.
"""
