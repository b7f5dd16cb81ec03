"""From `send` to the acknowledgement: appends a record to a batch, sends the batch, and evaluates the response."""
