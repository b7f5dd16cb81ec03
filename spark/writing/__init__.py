"""Queries that write, in a batch or in a stream: their options, the check of their columns, their tasks.

row_writer     `RowWriter`: writes the rows of a task; `BatchWriter` and `StreamWriter` are its two kinds
row_schema     checks the columns of the rows
write_options  `WriteOptions`: the options for writing

To change an option, open write_options.py; to change which columns are allowed, open row_schema.py; to change the
partition of a row, or how rows become records, open row_writer.py.
"""
