"""What holds for every test."""

import signal

from hypothesis import settings

# A shell has what it runs in the background ignore interrupts, and so would each process that a test begins.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes says something of the machine and nothing of the code.
settings.register_profile("isthmus", deadline=None)
settings.load_profile("isthmus")
