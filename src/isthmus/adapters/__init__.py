"""One file or package a provider."""
