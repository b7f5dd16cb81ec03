# cython: language_level=3
"""Runs programs in C."""
