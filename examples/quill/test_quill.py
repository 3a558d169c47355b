"""The adapter of Quill keeps every law, over its own recordings."""

from pathlib import Path

from quill_isthmus import QuillAdapter

from isthmus.conformance.pytest_plugin import laws_test

test_quill = laws_test(QuillAdapter, recordings=Path(__file__).parent / "tape")
