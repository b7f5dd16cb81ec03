"""Keeps the state that survives a restart: sequences, pins, transactions, and unsettled batches.

notes            the format of the journal
journal          builds an entry of the changes since the last poll
outage           the time in which the journal cannot be written
restored         restores the state of a core from the journal
state_directory  the segment files
"""
