"""The Anthropic Messages dialect and its adapter."""
