"""The base class of adapters."""

from __future__ import annotations


class ModelAdapter:
    """One model, provider or gateway behind the contract."""
