"""A prompt with its values: which of its messages are used where."""

from typing import Any

import pytest

from isthmus.errors import PromptError
from isthmus.models import (
    ImagePart,
    MultiPartPromptTemplate,
    PromptSpec,
    PromptTemplate,
    PromptTemplateBase,
    TextPart,
    render_instruction_text,
)
from isthmus.models.promptspec import render_user_messages

BOTH: PromptTemplate[Any, str] = PromptTemplate(system_template="Be {{ tone }}.", user_template="Ask {{ name }}.")
VALUES = {"tone": "kind", "name": "Ann"}


class Several(PromptTemplateBase[Any, str]):
    """A template of more messages than two."""

    def render_messages(self, values: Any = None) -> list[dict[str, Any]]:
        """Two of each, an example between them."""
        return [
            {"role": "system", "content": "One."},
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": "b"},
            {"role": "system", "content": "Two."},
            {"role": "user", "content": "c"},
        ]


def test_instructions_use_the_system_messages_alone() -> None:
    """The user message of the template is not part of the instructions."""
    assert render_instruction_text(PromptSpec(BOTH, VALUES)) == "Be kind."


def test_system_texts_are_joined_by_a_blank_line() -> None:
    """Several system messages, and the text parts of one, stand apart."""
    assert render_instruction_text(PromptSpec(Several())) == "One.\n\nTwo."
    parts: MultiPartPromptTemplate[Any, str] = MultiPartPromptTemplate(system_parts=[TextPart("a"), TextPart("b")])
    assert render_instruction_text(PromptSpec(parts)) == "a\n\nb"


def test_a_user_item_uses_the_user_messages_alone() -> None:
    """The system message of the template is not part of the input; roles and order stay."""
    assert render_user_messages(PromptSpec(BOTH, VALUES)) == [{"role": "user", "content": "Ask Ann."}]
    assert [message["content"] for message in render_user_messages(PromptSpec(Several()))] == ["a", "c"]


@pytest.mark.parametrize(
    ("render", "template", "said"),
    [
        (render_instruction_text, PromptTemplate(user_template="x"), "no system message: give it system_template"),
        (render_user_messages, PromptTemplate(system_template="x"), "no user message: give it user_template"),
    ],
)
def test_a_prompt_without_a_message_for_its_place_is_refused(render: Any, template: Any, said: str) -> None:
    """None for the role is a ValueError that says what to add."""
    with pytest.raises(ValueError, match=said):
        render(PromptSpec(template))


def test_instructions_that_are_no_text_are_refused() -> None:
    """An image among the instructions is a ValueError that says where to move it."""
    shown: MultiPartPromptTemplate[Any, str] = MultiPartPromptTemplate(system_parts=[ImagePart("iVBO", "image/png")])
    with pytest.raises(ValueError, match=r"input_image part of .* to the user's parts"):
        render_instruction_text(PromptSpec(shown))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda: PromptSpec("text"), r"PromptSpec.template: .*not str: .*PromptTemplate\("),  # type: ignore[arg-type]
        (lambda: PromptSpec(PromptTemplate), r"PromptSpec.template: "),  # type: ignore[arg-type]
        (lambda: render_instruction_text(BOTH), r"PromptTemplate: write PromptSpec\("),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_prompt_is_refused(wrong: Any, said: str) -> None:
    """A text or a bare template is told how to become a prompt."""
    with pytest.raises(PromptError, match=said):
        wrong()


def test_values_are_read_when_the_prompt_is_rendered() -> None:
    """What changes in the values until then is seen, and rendering changes nothing in them."""
    values = dict(VALUES)
    spec = PromptSpec(BOTH, values)
    values["tone"] = "firm"
    assert render_instruction_text(spec) == "Be firm."
    assert values == {"tone": "firm", "name": "Ann"}


def test_a_repr_holds_no_values() -> None:
    """Values may be private and stay out of logs."""
    assert "kind" not in repr(PromptSpec(BOTH, VALUES))
