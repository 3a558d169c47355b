"""Models behind Amazon Bedrock: Messages by InvokeModel, all others by Converse."""

from isthmus.adapters.bedrock.adapter import BedrockAdapter

__all__ = ["BedrockAdapter"]
