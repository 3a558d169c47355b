"""Which version of the library this is. Rank 0: standard library only."""

__version__ = "0.1.0"
