"""What a law is, and the register that the modules of laws write into."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from isthmus.conformance.report import ERROR


class Found(NamedTuple):
    """A violation as a law's judge sees it; the law adds its id and its remedy.

    Args:
        message: the place, the value and what is wrong with it.
        seen: what was observed.
        expected: what a right adapter shows there.
        severity: "error" or "warning".
    """

    message: str
    seen: str = ""
    expected: str = ""
    severity: str = ERROR


class NotJudged(Exception):
    """A law that does not apply to this adapter, or that could not be judged.

    Args:
        reason: why.
        status: "n/a" or "skip".
    """

    def __init__(self, reason: str, status: str = "n/a") -> None:
        super().__init__(reason)
        self.reason = reason
        self.status = status


Judge = Callable[[Any], AsyncIterator[Found]]


@dataclass(frozen=True, slots=True)
class Law:
    """One rule that every adapter is held to.

    Args:
        id: its name.
        claim: what a right adapter does, in one sentence.
        why: what goes wrong without it.
        fix: how to mend an adapter that breaks it.
        covers: the fault classes it belongs to, by id (`docs/faults.md`).
        after: laws whose violation makes this one impossible to judge.
        judge: what looks for violations.
    """

    id: str
    claim: str
    why: str
    fix: str
    covers: tuple[str, ...]
    after: tuple[str, ...]
    judge: Judge


class Group:
    """The laws of one module, in the order in which they are judged."""

    def __init__(self) -> None:
        self.laws: list[Law] = []

    def law(
        self,
        name: str,
        claim: str,
        *,
        why: str,
        fix: str,
        covers: tuple[str, ...] = (),
        after: tuple[str, ...] = ("made",),
    ) -> Callable[[Judge], Judge]:
        """Register a judge under a law; see `Law`."""

        def register(judge: Judge) -> Judge:
            self.laws.append(Law(name, claim, why, fix, covers, after, judge))
            return judge

        return register


def of_shape(name: str) -> Judge:
    """A judge that reports what the readings of the usual requests hold under this law, once a face."""

    async def judge(seen: Any) -> AsyncIterator[Found]:
        said: set[str] = set()
        for heard in [*await seen.usual(), *await seen.without_tools()]:
            for problem in heard.reading.problems if heard.reading else ():
                if problem.law == name and heard.face not in said:
                    said.add(heard.face)
                    yield Found(problem.message, problem.seen, problem.expected)

    return judge
