"""What outlives the proxy's end: which numbers it gave to which records, and those that are on their way.

notes      what stands in the journal, declared
journal    what has changed since the last poll, as one entry
restored   a machine as the journal has left it
files      the segments on the disk
"""
