"""The version of ottla, in a module of its own: the front module `ottla` imports too much for types."""

__version__ = "0.1.0"
