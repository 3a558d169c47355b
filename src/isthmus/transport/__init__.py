"""How calls travel: HTTP, credentials, recordings."""
