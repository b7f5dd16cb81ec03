# cython: language_level=3
"""The records' inner loops in C."""
