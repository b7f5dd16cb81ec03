"""Transactions of a producer, as machines."""
