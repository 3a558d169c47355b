"""What holds for every test."""

from hypothesis import settings

# How long an example takes says something of the machine and nothing of the code.
settings.register_profile("isthmus", deadline=None)
settings.load_profile("isthmus")
