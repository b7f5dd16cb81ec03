"""One connection to one broker: its table of states, its requests and responses, and facts about the node."""
