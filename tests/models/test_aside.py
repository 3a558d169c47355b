"""What the model face shows and the other faces have no word for."""

from __future__ import annotations

from isthmus.models.aside import Aside
from isthmus.models.events import EVENT_TYPES, Call, Finish, Text, Usage, event_to_dict
from isthmus.models.fold import consume_stream
from isthmus.models.responses import ModelStreamEvent
from isthmus.wire.frame import Frame

EVENT = ModelStreamEvent(kind="provider", raw=Frame(b"{}", "response.created"), provider_event_type="response.created")


async def test_asides_change_nothing() -> None:
    """Left out or not, the reply is the same."""
    events = [Text("Hel"), Call("look", {}, "c1", "{}"), Text("lo"), Finish("stop", Usage(output_tokens=1))]
    among = [each for event in events for each in (Aside(EVENT), event)]
    assert await consume_stream(among) == await consume_stream(events)
    assert Aside in EVENT_TYPES


def test_an_aside_as_json_leaves_the_providers_form_out() -> None:
    """What the provider sent may be large, or have no JSON form."""
    shown = {"type": "aside", "kind": "provider", "provider_event_type": "response.created"}
    assert event_to_dict(Aside(EVENT)) == shown
