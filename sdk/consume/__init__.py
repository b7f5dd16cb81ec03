"""From a position to a batch in the user's hands: positions, fetches, buffers."""
