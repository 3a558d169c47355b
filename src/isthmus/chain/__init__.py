"""Tiers in order, with retry and fallback."""
