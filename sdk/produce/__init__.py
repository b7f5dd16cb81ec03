"""From `send` to the acknowledgement: a record is appended to a batch, the batch is sent, the answer is judged."""
