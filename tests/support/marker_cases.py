"""Random texts full of markers, random cuts of them, and what must come out, told by an independent reading."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from isthmus.chain import define_marker
from isthmus.chain.markers import MarkerForm, draining
from isthmus.models.events import Call, Event, Finish, Marker, Text

LIMIT = 9


def _even(inner: str) -> str:
    if len(inner) % 2:
        raise ValueError(inner)
    return inner


SETS: tuple[tuple[MarkerForm, ...], ...] = (
    (define_marker("plain", "[[", "]]", max_chars=LIMIT),),
    (define_marker("a", "<", ">", max_chars=LIMIT), define_marker("b", "<<", ">>", max_chars=LIMIT)),
    (define_marker("same", "::", "::", max_chars=LIMIT), define_marker("one", "ab", "b", max_chars=LIMIT)),
    (define_marker("picky", "{", "}", parse=_even, max_chars=LIMIT), define_marker("é", "é🙂", "🙂", max_chars=LIMIT)),
    (define_marker("over", "aab", "c", max_chars=LIMIT), define_marker("lap", "aba", "c", max_chars=LIMIT)),
    (define_marker("a", "a", "b", max_chars=LIMIT), define_marker("abX", "abX", "c", max_chars=LIMIT)),
)
LETTERS = ("[]x", "<>x", ":abx", "{}é🙂x", "abcx", "abXcx")

Piece = str | Marker


def reference(text: str, forms: Sequence[MarkerForm]) -> list[Piece]:
    """What a whole text comes to, read in the plainest way: character by character, from the left."""
    out: list[Piece] = []
    at = 0
    while at < len(text):
        here = [form for form in forms if text.startswith(form.open, at)]
        form = max(here, key=lambda form: len(form.open), default=None)
        end = -1 if form is None else text.find(form.close, at + len(form.open))
        raw = "" if form is None or end < 0 else text[at : end + len(form.close)]
        if form is None or not raw or len(raw) > form.max_chars:
            out.append(text[at])
            at += 1
            continue
        try:
            out.append(Marker(form.name, form.parse(raw[len(form.open) : -len(form.close)]), raw))
        except ValueError:
            out.append(raw)
        at += len(raw)
    return joined(out)


def joined(pieces: Sequence[Piece]) -> list[Piece]:
    """The same with texts that touch put together."""
    made: list[Piece] = []
    for piece in pieces:
        if isinstance(piece, str) and made and isinstance(made[-1], str):
            made[-1] += piece
        elif piece != "":
            made.append(piece)
    return made


def drained(events: Sequence[Event], forms: Sequence[MarkerForm]) -> list[Any]:
    """What goes out for these events, texts that touch put together, the finish left out."""
    make = draining(forms, "test")
    assert make is not None
    drain = make(lambda kind, fields: None)
    out: list[Any] = []
    for event in events:
        for shown in drain.take(event):
            if not isinstance(shown, Finish):
                out.append(shown.text if isinstance(shown, Text) else shown)
    return joined(out)


@dataclass(frozen=True)
class Case:
    """One text, or two with a call in between, and one way to cut it."""

    forms: tuple[MarkerForm, ...]
    texts: tuple[str, ...]
    events: tuple[Event, ...]

    @property
    def expected(self) -> list[Any]:
        """What must come out, however it was cut."""
        out: list[Any] = []
        for number, text in enumerate(self.texts):
            if number:
                out.append(Call("look", {}, f"c{number}"))
            out += reference(text, self.forms)
        return joined(out)


def pieces(rng: random.Random, text: str) -> list[str]:
    """The text cut at random, single characters and empty pieces included."""
    cuts = sorted(rng.randint(0, len(text)) for _ in range(rng.randint(0, len(text) + 2)))
    bounds = [0, *cuts, len(text)]
    return [text[start:stop] for start, stop in pairwise(bounds)]


def cases(seed: int, count: int) -> Iterator[Case]:
    """So many random cases, the same ones for the same seed."""
    rng = random.Random(seed)
    for _ in range(count):
        which = rng.randrange(len(SETS))
        texts = tuple("".join(rng.choices(LETTERS[which], k=rng.randint(0, 24))) for _ in range(rng.choice((1, 1, 2))))
        events: list[Event] = []
        for number, text in enumerate(texts):
            if number:
                events.append(Call("look", {}, f"c{number}"))
            events += [Text(piece) for piece in pieces(rng, text)]
        yield Case(SETS[which], texts, (*events, Finish("stop")))
