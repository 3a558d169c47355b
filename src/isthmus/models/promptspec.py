"""A prompt with its values, and what a run makes of it."""

from __future__ import annotations

from typing import Any, Generic

import msgspec

from isthmus.errors import PromptError
from isthmus.models.messages import MessageRole
from isthmus.models.prompts import Ctx, PromptTemplateBase


class PromptSpec(msgspec.Struct, Generic[Ctx], frozen=True):
    """A template with its values, rendered when a run begins: what changes in the values until then is seen.

    As instructions only its system messages are used; as an input only its user messages.

    Args:
        template: the template.
        values: what its variables stand for; held, never changed.

    Raises:
        PromptError: the template is none.
    """

    template: PromptTemplateBase[Ctx, Any]
    values: Ctx | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.template, PromptTemplateBase):
            raise PromptError(
                f"PromptSpec.template: must be a PromptTemplate, not {type(self.template).__name__}: "
                "wrap the text, PromptTemplate(user_template=…)"
            )

    def __repr__(self) -> str:
        return f"PromptSpec({self.template!r})"

    def to_dict(self) -> dict[str, Any]:
        """What it renders to, with its values and the form that it asks for.

        Raises:
            PromptError: it cannot be rendered.
        """
        template = self.template
        return {
            "messages": template.render_messages(self.values),
            "values": self.values,
            "response_format": template.response_format(),
        }


def render_instruction_text(spec: PromptSpec[Any]) -> str:
    """The system texts of a prompt, joined by a blank line.

    Raises:
        PromptError: it has no system message, or one that is not all text; or it cannot be rendered.
    """
    texts: list[str] = []
    for message in _of_role(spec, MessageRole.SYSTEM, "system_template or system_parts"):
        content = message["content"]
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        for part in parts:
            if part.get("type") != "text":
                raise PromptError(
                    f"instructions are text: move the {part.get('type')} part of {spec.template!r} to the user's parts"
                )
            texts.append(part["text"])
    return "\n\n".join(texts)


def render_user_messages(spec: PromptSpec[Any]) -> list[dict[str, Any]]:
    """The user messages of a prompt.

    Raises:
        PromptError: it has none, or cannot be rendered.
    """
    return _of_role(spec, MessageRole.USER, "user_template or user_parts")


def _of_role(spec: PromptSpec[Any], role: MessageRole, remedy: str) -> list[dict[str, Any]]:
    if not isinstance(spec, PromptSpec):
        raise PromptError(
            f"a prompt must be a PromptSpec, not {type(spec).__name__}: write PromptSpec(template, values)"
        )
    found = [message for message in spec.template.render_messages(spec.values) if message.get("role") == role]
    if not found:
        raise PromptError(f"{spec.template!r} has no {role} message: give it {remedy}")
    return found
