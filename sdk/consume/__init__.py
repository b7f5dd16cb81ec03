"""The consumer: positions, fetches, buffers, commits."""
