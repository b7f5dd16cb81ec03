"""A streaming query that reads: its micro-batches, its checkpoint, its progress.

stream_reader   `StreamReader`: decides what each micro-batch reads; its tasks are those of `ottla.spark.reading`
stream_offsets  `StreamOffset`: how far the query has read, as the checkpoint has it
progress        `Progress`: lag and rate, in the log and for Prometheus
group_commits   `GroupCommits`: commits the progress to a group, for Kafka's own tools

To change what a micro-batch reads, open stream_reader.py; to change the checkpoint, open stream_offsets.py.
"""
