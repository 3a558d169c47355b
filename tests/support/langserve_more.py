"""More routes beside those of the test peer's app: what only some servers publish. Runs in the peer's environment."""

from __future__ import annotations

from itertools import cycle

from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.outputs import ChatGenerationChunk
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda
from langserve import add_routes
from langserve_app import TXT, StreamingToolModel, app


class Thinking(StreamingToolModel):
    """Thinks, signs it, answers; in blocks, as the integrations of some providers do."""

    def _stream(self, messages, stop=None, run_manager=None, **kwargs):
        signed = {"type": "thinking", "thinking": " Sunny.", "signature": SIGNATURE, "index": 0}
        blocks = [
            {"type": "thinking", "thinking": "Rome.", "index": 0},
            signed,
            {"type": "text", "text": "Sunny.", "index": 1},
        ]
        told = {"response_metadata": {"stop_reason": "end_turn"}, "usage_metadata": TXT.usage_metadata}
        for block in blocks:
            yield ChatGenerationChunk(message=AIMessageChunk(content=[block]))
        yield ChatGenerationChunk(message=AIMessageChunk(content=[], **told))


SIGNATURE = "RXhhbXBsZVNpZ25hdHVyZQ" * 8
PROMPT = ChatPromptTemplate.from_messages([("placeholder", "{messages}")])
DRAFT = GenericFakeChatModel(messages=cycle([AIMessage(content="A first draft.")]))
FINAL = GenericFakeChatModel(messages=cycle([TXT]))

two = PROMPT | DRAFT | RunnableLambda(lambda draft: [HumanMessage(draft.content)]) | FINAL
add_routes(app, two, path="/two")
add_routes(app, PROMPT | FINAL | StrOutputParser(), path="/text")
add_routes(app, FINAL, path="/unstreamed", disabled_endpoints=["stream_events"])
CHAIN = PROMPT | StreamingToolModel(messages=cycle([TXT]))
add_routes(app, CHAIN, path="/unstreamedchain", enabled_endpoints=["invoke"])
add_routes(app, Thinking(messages=cycle([TXT])), path="/thinking")


def _echo(value: dict) -> str:
    """What reached the runnable, as text."""
    said = [f"{message['type']}: {message['content']}" for message in value["messages"]]
    return " | ".join([*said, *(f"tool {tool['function']['name']}" for tool in value.get("tools", ()))])


add_routes(app, RunnableLambda(_echo).with_types(input_type=dict, output_type=str), path="/echo")
