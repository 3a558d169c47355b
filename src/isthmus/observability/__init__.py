"""Records of what happens, and where they go."""
