"""One assigned partition: where it is read, and the records that were fetched for it.

position     `Position`: its state and its two offsets; `Start`: where it begins
fetched      `Fetched`: the batches of a response in its buffer, in parts that fit into memory
starts       converts the starts that users name (``"end"``, a time, …)
record_sets  splits a record set into batches, and finds damaged, truncated and hidden ones

To add a start that users may name, open starts.py; to change which records they see, open record_sets.py. Seeks,
lookups and resets are in `ottla.sdk.consume.positions`.
"""
