"""More routes beside those of the test peer's app: what only some servers publish. Runs in the peer's environment."""

from __future__ import annotations

from itertools import cycle

from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda
from langserve import add_routes
from langserve_app import TXT, StreamingToolModel, app

PROMPT = ChatPromptTemplate.from_messages([("placeholder", "{messages}")])
DRAFT = GenericFakeChatModel(messages=cycle([AIMessage(content="A first draft.")]))
FINAL = GenericFakeChatModel(messages=cycle([TXT]))

two = PROMPT | DRAFT | RunnableLambda(lambda draft: [HumanMessage(draft.content)]) | FINAL
add_routes(app, two, path="/two")
add_routes(app, PROMPT | FINAL | StrOutputParser(), path="/text")
add_routes(app, FINAL, path="/unstreamed", disabled_endpoints=["stream_events"])
CHAIN = PROMPT | StreamingToolModel(messages=cycle([TXT]))
add_routes(app, CHAIN, path="/unstreamedchain", enabled_endpoints=["invoke"])


def _echo(value: dict) -> str:
    """What reached the runnable, as text."""
    said = [f"{message['type']}: {message['content']}" for message in value["messages"]]
    return " | ".join([*said, *(f"tool {tool['function']['name']}" for tool in value.get("tools", ()))])


add_routes(app, RunnableLambda(_echo).with_types(input_type=dict, output_type=str), path="/echo")
