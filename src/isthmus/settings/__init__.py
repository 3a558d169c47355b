"""The configuration: TOML files, environment and flags, merged, each value with its origin."""

from isthmus.settings.keys import LLM_KEYS, hidden, is_secret, like_parameter, moved, shown, unknown_key
from isthmus.settings.merged import Setting, Settings, Table, load_settings
from isthmus.settings.sources import Layer, Source, folder_file, state_folder, trust_store, user_file
from isthmus.settings.trust import TrustStore, read_regular

__all__ = [
    "LLM_KEYS",
    "Layer",
    "Setting",
    "Settings",
    "Source",
    "Table",
    "TrustStore",
    "folder_file",
    "hidden",
    "is_secret",
    "like_parameter",
    "load_settings",
    "moved",
    "read_regular",
    "shown",
    "state_folder",
    "trust_store",
    "unknown_key",
    "user_file",
]
