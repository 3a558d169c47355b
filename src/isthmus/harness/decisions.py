"""What is asked of a call that waits, and what is decided."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Any

from isthmus.harness.errors import ApprovalError
from isthmus.models.plainjson import plain_json

VERDICTS = ("run", "refuse", "answer")


def digest_of(tool: str, arguments: Mapping[str, Any] | None) -> str:
    """The digest of a call: SHA-256, in hex, of its tool and its arguments, whatever their order."""
    text = json.dumps([tool, arguments], sort_keys=True, separators=(",", ":"))
    return sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What is decided of one call; plain values, to be made by hand or by the request itself.

    Args:
        run: the run that asked.
        call_id: the call.
        digest: the digest of what the call was to do when it was decided.
        verdict: "run", "refuse", or "answer": it is not run, and the model reads the text as its result.
        text: the reason of a refusal, or the answer; the model reads it.
        arguments: what the call is run with, in place of its own arguments; the model is told.

    Raises:
        TypeError: a field is of another type, or something in the arguments has no JSON form; names its place.
        ValueError: the verdict is none of these, arguments stand beside one that runs nothing, or are no JSON.
    """

    run: str
    call_id: str
    digest: str
    verdict: str
    text: str = ""
    arguments: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.verdict not in VERDICTS:
            raise ValueError(f"verdict={self.verdict!r:.40}: must be one of {', '.join(VERDICTS)}")
        for name in ("run", "call_id", "digest", "text"):
            value = getattr(self, name)
            if not isinstance(value, str):
                raise TypeError(f"{name}={value!r:.40}: must be text")
        if self.arguments is None:
            return
        if self.verdict != "run":
            raise ValueError(f"arguments: a call with the verdict {self.verdict!r} is not run")
        if not isinstance(self.arguments, Mapping):
            raise TypeError(f"arguments={self.arguments!r:.40}: must be an object, as the tool takes it")
        # Decisions outlive their caller's objects, and what is wrong with them must be known before they are used up.
        object.__setattr__(self, "arguments", plain_json(self.arguments, "arguments"))

    def to_dict(self) -> dict[str, Any]:
        """The fields by name; `Decision(**fields)` makes it anew."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRequest:
    """One call that waits for a decision.

    Args:
        run: the run that asks.
        call_id: the call.
        tool: its tool.
        arguments: its arguments.
        digest: what a decision must name, so that it holds for these arguments alone.
        why: "approval", or "unknown": the call began, and what became of it was not recorded.
        reason: what the policy says of it, for a person.
    """

    run: str
    call_id: str
    tool: str
    arguments: Mapping[str, Any]
    digest: str
    why: str = "approval"
    reason: str = ""

    def approve(self, arguments: Mapping[str, Any] | None = None) -> Decision:
        """Run it, with these arguments where some are given; one that is "unknown" then runs once more."""
        return self._decided("run", arguments=arguments)

    def refuse(self, reason: str = "") -> Decision:
        """Do not run it; the model reads the reason."""
        return self._decided("refuse", text=reason)

    def answer(self, content: str) -> Decision:
        """Do not run it: this is its result, e.g. of a call that had run before a crash."""
        return self._decided("answer", text=content)

    def _decided(self, verdict: str, **about: Any) -> Decision:
        return Decision(run=self.run, call_id=self.call_id, digest=self.digest, verdict=verdict, **about)

    def to_dict(self) -> dict[str, Any]:
        """The fields by name, e.g. for a page that asks."""
        return asdict(self)


def checked(decisions: Iterable[Decision], run: str, *, digests: Mapping[str, str]) -> dict[str, Decision]:
    """The decisions by call, each held against what it was made for.

    Args:
        decisions: as they were given.
        run: the run that they must name.
        digests: the calls that may be decided, and the digests that they must name.

    Raises:
        ApprovalError: one is of another run, call or arguments, or two of one call differ.
        TypeError: something that is no decision.
    """
    found: dict[str, Decision] = {}
    for each in decisions:
        if not isinstance(each, Decision):
            raise TypeError(f"decisions: must be Decisions, as request.approve() makes them, not {each!r:.60}")
        if each.run != run:
            raise ApprovalError(f"the decision of call {each.call_id!r} is of run {each.run!r}, not of {run!r}")
        if each.call_id not in digests:
            waiting = ", ".join(map(repr, digests)) or "none"
            raise ApprovalError(f"call {each.call_id!r} does not wait for a decision; those that do: {waiting}")
        if each.digest != digests[each.call_id]:
            raise ApprovalError(
                f"the decision of call {each.call_id!r} is of other arguments (digest {each.digest:.12}…, "
                f"not {digests[each.call_id]:.12}…): look at the call as it stands, and decide anew"
            )
        if found.setdefault(each.call_id, each) != each:
            raise ApprovalError(f"call {each.call_id!r} is decided twice, and differently")
    return found
