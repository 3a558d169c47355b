"""Chat Completions, the dialect that most servers speak."""
