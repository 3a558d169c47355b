"""A name stands for what makes an adapter: a dotted path, a provider, a provider with a model."""

from __future__ import annotations

import pytest

from isthmus.adapters.openai_chat import OpenAIChatAdapter
from isthmus.conformance import maker_of
from isthmus.errors import ConfigError
from support.twins import Chat


def test_a_dotted_path_and_a_provider_are_found() -> None:
    """Both give the class itself, whose constructor names its settings."""
    assert maker_of("support.twins:Chat").__name__ == Chat.__name__
    assert maker_of("openai") is OpenAIChatAdapter


def test_a_model_is_given_by_name() -> None:
    """What stands after a provider's colon is its model."""
    assert maker_of("openai:some-model")(api_key="k").model == "some-model"


@pytest.mark.parametrize("ref", ["nobody", "no.such.module:Thing", "support.twins:Nobody"])
def test_what_is_not_there_is_a_wrong_call(ref: str) -> None:
    """A name of nothing says so."""
    with pytest.raises(ConfigError):
        maker_of(ref)
