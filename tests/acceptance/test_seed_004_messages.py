"""The examples of the page on the models layer that are about messages, changed in their import root alone."""

from __future__ import annotations

from typing import Any

from isthmus import Agent
from isthmus.adapters.base import ModelAdapter
from isthmus.adapters.openai_chat.codec import ChatCodec
from isthmus.models import internal_message, is_internal_message, provider_messages
from isthmus.models.contract import GenerateContext
from isthmus.models.jsontext import loads
from isthmus.models.model import Model
from isthmus.models.responses import Choice, Message, ModelResponse


def test_the_pages_message_with_a_role() -> None:
    """A message is made with the value of a role."""
    from isthmus.models import MessageRole

    message = {"role": MessageRole.USER.value, "content": "Hello"}
    assert message == {"role": "user", "content": "Hello"}


def test_the_pages_internal_message() -> None:
    """Runtime context is marked with its origin, and found by it."""
    from isthmus.models import internal_message, is_internal_message

    context = internal_message(
        {"role": "user", "content": "Available files: report.csv"},
        origin="file_inventory",
    )
    assert is_internal_message(context, origin="file_inventory")


def test_the_pages_ephemeral_message() -> None:
    """Context for one run is marked so, and found by its origin."""
    from isthmus.models import internal_message, is_ephemeral_message

    view = internal_message(
        {"role": "user", "content": "The user views report.csv."},
        origin="ui_view",
        ephemeral=True,
    )
    assert is_ephemeral_message(view, origin="ui_view")


VIEW = internal_message({"role": "user", "content": "The user views report.csv."}, origin="ui_view", ephemeral=True)
ASK = {"role": "user", "content": "What is it?"}


async def test_an_adapter_of_ones_own_gets_marked_context_and_strips_it_itself() -> None:
    """On the step face the mark is still there to see; `provider_messages` takes it off at the request."""
    seen: list[Any] = []

    class Mine(ModelAdapter):
        def generate(self, ctx: GenerateContext) -> Any:
            seen.append((ctx.messages, provider_messages(ctx.messages)))
            return {"events": [{"type": "text", "text": "A report."}], "finish": "stop"}

    result = await Agent(model=Mine()).run([VIEW, ASK])
    ((stored, sent),) = seen
    assert is_internal_message(stored[0], "ui_view")
    assert sent == [{"role": "user", "content": "The user views report.csv."}, ASK]
    assert [message["content"] for message in result.messages] == ["What is it?", "A report."]


async def test_a_model_that_writes_get_response_gets_the_context_without_its_mark() -> None:
    """On the chat and model faces, whose authors know no marks, they are gone; the content is there, in order."""
    seen: list[Any] = []

    class Mine(Model):
        async def get_response(self, messages: Any, *args: Any, **kwargs: Any) -> ModelResponse:
            seen.append([dict(message) for message in messages])
            return ModelResponse(
                id="r", model="m", choices=[Choice(message=Message(content="A report."), finish_reason="stop")]
            )

    await Agent(model=Mine()).run([VIEW, ASK])
    assert seen == [[{"role": "user", "content": "The user views report.csv."}, ASK]]


def test_a_built_in_request_holds_the_content_and_no_mark() -> None:
    """A built-in codec sends internal messages in place and none of their bookkeeping."""
    body = ChatCodec("m").encode(GenerateContext(messages=(VIEW, ASK)), stream=False).call.body
    assert loads(body)["messages"] == [{"role": "user", "content": "The user views report.csv."}, ASK]
    assert b"_isthmus" not in body
