"""The narrow waist between applications and language models."""
