"""Bytes to frames; no provider, no I/O."""
