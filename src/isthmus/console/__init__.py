"""The command and the terminal."""
