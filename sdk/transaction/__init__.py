"""State machines for a producer's transactions."""
