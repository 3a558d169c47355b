"""Proof that an adapter keeps the contract."""
