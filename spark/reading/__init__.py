"""A batch query that reads: its options, its offsets, its tasks. Streaming queries build on this folder.

batch_reader  `BatchReader`: the driver plans a query, its tasks read
read_options  `ReadOptions` and `StreamOptions`: the options for reading
offsets       the offsets that a query reads, and how its tasks share them

To change an option, open read_options.py; to change how a query is divided into tasks, open offsets.py; to change what
a task does, or which errors users see, open batch_reader.py.
"""
