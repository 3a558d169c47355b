"""The Messages dialect, and the adapter of the endpoint that it comes from."""

from isthmus.adapters.anthropic.adapter import AnthropicAdapter

__all__ = ["AnthropicAdapter"]
