"""How a pytest that a test starts gets the kit's plugin: by its entry point where the library is installed."""

from importlib.metadata import entry_points

NAME = "isthmus.conformance.pytest_plugin"


def plugin_flags() -> list[str]:
    """The flags that load the plugin, which must not be loaded twice."""
    return [] if list(entry_points(group="pytest11", name="isthmus")) else ["-p", NAME]
