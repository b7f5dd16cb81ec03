"""Partitions as share groups read them (KIP-932): the members of their records, and the results.

share_partitions      `SharePartitions`: finds and loads share partitions, and releases records whose locks expire
share_partition       `SharePartition`: the records of one partition that are in flight for one group
acquisition           `Acquisition`: the records that a member gets
record_results        `RecordResults`: the results that a member tells; `RecordChanges`: what changes by them
in_flight             `InFlightBatch`: records that were acquired at once, as runs with the same state
delivery_states       the states of a record, as a table
stored_state          `StoredStates`: the state as records of `__share_group_state`
share_sessions        `ShareSessions`: the sessions of members with this broker
share_group_configs   the settings that apply to a group: its own, or else the settings of the broker

To change which records a member gets, open acquisition.py; to change the stored state, open stored_state.py.
"""
