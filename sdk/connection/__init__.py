"""One connection to one broker: its table of states, what goes over it, and what is known of the node behind it."""
