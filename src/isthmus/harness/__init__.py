"""Agents: the loop and what drives it."""
