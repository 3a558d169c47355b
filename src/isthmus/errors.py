"""Every error that Isthmus raises, as one tree; knows nothing of providers, transports or messages.

IsthmusError
├── ModelsException                 a model failed, or did what it may not
│   ├── TierError                   a model call failed, classified
│   │   ├── TransientError          worth another try on the same tier
│   │   ├── UnavailableError        down, overloaded or gone: next tier at once
│   │   │   ├── ChainExhausted      every tier of a chain failed
│   │   │   └── ChainCut            a chain's own time, budget or window was used up
│   │   ├── CredentialsError        key, permission or billing
│   │   ├── ContextOverflowError    the prompt does not fit
│   │   ├── RefusedError            content policy, before any content
│   │   ├── InvalidRequestError     the request is wrong (also a ValueError)
│   │   ├── ProtocolError           the other side, or an adapter, broke its contract
│   │   └── UnclassifiedError       anything else
│   └── ModelBehaviorError          the model answered what it may not answer
├── ConfigError                 a setting is wrong (also a ValueError)
├── AdapterError                an adapter class is not usable (also a TypeError)
├── OutputError                 a reply is not of the form that was asked for (also a ValueError)
│   └── OutputTruncatedError    it was cut at the output limit
├── OutputDefinitionError       a form cannot be asked for (also a ValueError and a TypeError)
├── CallCancelledError          a call was given up: its token was cancelled (also an InterruptedError)
├── ToolDefinitionError         a tool cannot be offered (also a ValueError)
├── PromptError                 a prompt cannot be made or rendered (also a ValueError and a TypeError)
├── MissingDependencyError      an optional package is absent (also an ImportError)
└── LiveCallError               a test was about to reach another machine (also a RuntimeError)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import isfinite
from typing import Any, TypeGuard


class ErrorClass(StrEnum):
    """What a chain may do about a failed model call."""

    TRANSIENT = "transient"
    UNAVAILABLE = "unavailable"
    CREDENTIALS = "credentials"
    OVERFLOW = "overflow"
    REFUSED = "refused"
    INVALID = "invalid"
    PROTOCOL = "protocol"
    UNCLASSIFIED = "unclassified"


class CutReason(StrEnum):
    """Why a turn ended before the model was done."""

    STREAM_ERROR = "stream-error"
    EXHAUSTED = "exhausted"
    DEADLINE = "deadline"
    ABORTED = "aborted"
    BUDGET_STEPS = "budget-steps"
    BUDGET_TOKENS = "budget-tokens"
    BUDGET_COST = "budget-cost"
    BUDGET_TIME = "budget-time"
    BUDGET_CALLS = "budget-calls"
    WINDOW = "window"
    LENGTH = "length"
    REFUSED = "refused"
    APPROVAL = "approval"


class IsthmusError(Exception):
    """Root of all errors raised on purpose by this library; each survives a copy whole."""

    def __reduce__(self) -> tuple[Any, ...]:
        # What it holds goes as state, set once the error is there: its `partial` holds the error again.
        return _blank, (type(self), self.args), dict(self.__dict__)


def _blank(cls: type[IsthmusError], args: tuple[Any, ...]) -> IsthmusError:
    return cls.__new__(cls, *args)


@dataclass(slots=True)
class RunErrorDetails:
    """How far a run had come when it failed.

    Args:
        raw_response: the last reply that it had had (`ModelResponse`), or None.
    """

    raw_response: Any = None


class ModelsException(IsthmusError):
    """Root of what goes wrong with a model, rather than with the code that calls it.

    Args:
        args: what went wrong.
        run_data: how far the run had come; set by the run, None outside of one.
    """

    run_data: RunErrorDetails | None = None

    def __init__(self, *args: object, run_data: RunErrorDetails | None = None) -> None:
        super().__init__(*args)
        if run_data is not None:
            self.run_data = run_data


class ModelBehaviorError(ModelsException):
    """The model answered what it may not answer, e.g. with a call after the tools were withdrawn.

    Args:
        message: what it did.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class TierError(ModelsException):
    """A model call that failed, with the class that decides what happens next.

    Args:
        message: what went wrong, without secrets.
        status: HTTP status of the reply, or the status an in-band error stands for.
        code: the provider's own error code or type.
        retry_after: seconds the provider asked to wait, or None.
        usage: tokens known to be spent when it failed (`isthmus.models.events.Usage`).
        partial: what had arrived before the failure (`StepResult`), if anything.
        body: the first bytes of the provider's error body, as text.
    """

    error_class: ErrorClass = ErrorClass.UNCLASSIFIED

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        code: str | None = None,
        retry_after: float | None = None,
        usage: Any = None,
        partial: Any = None,
        body: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.code = code
        self.retry_after = retry_after
        self.usage = usage
        self.partial = partial
        self.body = body

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.message!r}, status={self.status!r}, code={self.code!r})"

    def to_dict(self) -> dict[str, Any]:
        """The error as plain JSON values."""
        return {
            "class": str(self.error_class),
            "message": self.message,
            "status": self.status,
            "code": self.code,
            "retry_after": self.retry_after,
        }


class TransientError(TierError):
    """A passing fault: time-out, lost connection, rate limit, server error."""

    error_class = ErrorClass.TRANSIENT


class UnavailableError(TierError):
    """The tier cannot serve now: overloaded, refused connection, unknown model."""

    error_class = ErrorClass.UNAVAILABLE


class CredentialsError(TierError):
    """The key, the permission or the account is not good."""

    error_class = ErrorClass.CREDENTIALS


class ContextOverflowError(TierError):
    """The prompt does not fit the model's window."""

    error_class = ErrorClass.OVERFLOW


class RefusedError(TierError):
    """The provider's content policy refused the request before any content."""

    error_class = ErrorClass.REFUSED


class InvalidRequestError(TierError, ValueError):
    """The request itself is wrong; no other tier will like it better, unless it is wrong `for_this_tier` alone."""

    error_class = ErrorClass.INVALID
    for_this_tier: bool = False


class ProtocolError(TierError):
    """A peer or an adapter broke the rules of its own protocol."""

    error_class = ErrorClass.PROTOCOL


class UnclassifiedError(TierError):
    """A failure that nothing here recognises."""

    error_class = ErrorClass.UNCLASSIFIED


class ResponseError(TierError):
    """A reply that ended without an answer; `response` is the provider's own, or the event that said so."""

    response: Any = None
    error: Any = None


_CLASSES: dict[ErrorClass, type[TierError]] = {
    cls.error_class: cls
    for cls in (
        TransientError,
        UnavailableError,
        CredentialsError,
        ContextOverflowError,
        RefusedError,
        InvalidRequestError,
        ProtocolError,
        UnclassifiedError,
    )
}


def tier_error(
    cls: str,
    message: str,
    *,
    retry_after: float | None = None,
    status: int | None = None,
    code: str | None = None,
    cause: BaseException | None = None,
) -> TierError:
    """Build the classified error of a failed model call.

    Args:
        cls: one of the `ErrorClass` values, e.g. "transient" or "unavailable".
        message: what went wrong, for a person; never a secret.
        retry_after: seconds to wait before another try, if the provider said so.
        status: HTTP status, if there was one.
        code: the provider's own error code.
        cause: the exception behind it; becomes `__cause__`.

    Raises:
        ValueError: `cls` is not an error class; the message lists those that are.
    """
    try:
        kind = ErrorClass(cls)
    except ValueError:
        raise ValueError(f"unknown error class {cls!r}: use one of {', '.join(ErrorClass)}") from None
    error = _CLASSES[kind](message, retry_after=retry_after, status=status, code=code)
    if cause is not None:
        error.__cause__ = cause
    return error


def is_hint(hint: Any) -> TypeGuard[float]:
    """Whether a `retry_after` is one that can be heeded: a number of seconds, finite and not negative."""
    return isinstance(hint, int | float) and isfinite(hint) and hint >= 0


class ChainExhausted(UnavailableError):
    """Every tier of a chain failed; names each attempt, and its cause is the last one's error.

    To a chain around it, this one is a tier that is "unavailable"; if nothing but overflows stopped it, "overflow".
    `retry_after` is the shortest wait that any of the failures asked for.

    Args:
        chain_id: the chain's id.
        failures: one record an attempt, in order, with `tier`, `attempt`, `error` and `seconds`.
    """

    def __init__(self, chain_id: str, failures: Sequence[Any] = ()) -> None:
        self.chain_id = chain_id
        self.failures = tuple(failures)
        tries = "; ".join(f"{f.tier} try {f.attempt}: {f.error.error_class}: {f.error.message}" for f in self.failures)
        hints = [hint for f in self.failures if is_hint(hint := f.error.retry_after)]
        said = f"chain {chain_id!r}: no tier answered ({tries or 'none could be tried'})"
        super().__init__(said, retry_after=min(hints, default=None))
        if self.failures and all(f.error.error_class == ErrorClass.OVERFLOW for f in self.failures):
            self.error_class = ErrorClass.OVERFLOW


class ChainCut(UnavailableError):
    """A limit of the chain itself ended a call: its time, its budget, or a prompt that no tier has room for.

    To a chain around it, this one is a tier that is "unavailable"; with the reason "window", "overflow".

    Args:
        message: what is used up, and what to do about it.
        reason: which limit.
    """

    def __init__(self, message: str, reason: CutReason, **details: Any) -> None:
        super().__init__(message, **details)
        self.reason = reason
        if reason is CutReason.WINDOW:
            self.error_class = ErrorClass.OVERFLOW


class ConfigError(IsthmusError, ValueError):
    """A setting that cannot be used.

    Args:
        message: what is wrong and what to do about it.
        where: file, variable or flag that it came from.
        key: the setting's dotted name.
    """

    def __init__(self, message: str, *, where: str | None = None, key: str | None = None) -> None:
        place = ": ".join(part for part in (where, key) if part)
        super().__init__(f"{place}: {message}" if place else message)
        self.where, self.key = where, key


class AdapterError(IsthmusError, TypeError):
    """An adapter class that cannot be used as written; says what to write."""


class OutputError(IsthmusError, ValueError):
    """A reply that is not of the form that was asked for, after all repairs.

    Args:
        message: what does not fit, and what to do about it.
        text: the text of the last reply.
        finish: its `FinishReason`.
        attempts: how many requests were made.
        partial: the last reply (`StepResult`).
    """

    def __init__(
        self, message: str, *, text: str = "", finish: str = "stop", attempts: int = 1, partial: Any = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.text = text
        self.finish = finish
        self.attempts = attempts
        self.partial = partial


class OutputTruncatedError(OutputError):
    """A reply of a given form that was cut at the output limit: not wrong, but not whole, and never repaired."""


class OutputDefinitionError(IsthmusError, ValueError, TypeError):
    """A form that no reply can be asked to take; names the type and the remedy."""


class CallCancelledError(IsthmusError, InterruptedError):
    """A call that was given up because its cancellation token was cancelled."""


class ToolDefinitionError(IsthmusError, ValueError, TypeError):
    """A tool that cannot be offered to a model; names the tool and the remedy."""


class PromptError(IsthmusError, ValueError, TypeError):
    """A prompt that cannot be made or rendered; names template, line and remedy, and never a value."""


class MissingDependencyError(IsthmusError, ImportError):
    """An optional package is not installed.

    Args:
        feature: what was asked for.
        package: the package that is missing.
        extra: the extra of `isthmus` that installs it.
    """

    def __init__(self, feature: str, package: str, *, extra: str) -> None:
        super().__init__(f"{feature} needs the package {package!r}: pip install 'isthmus[{extra}]'")
        self.package, self.extra = package, extra


class LiveCallError(IsthmusError, RuntimeError):
    """A connection to another machine where live calls are forbidden.

    Args:
        host: where it would have gone.
    """

    def __init__(self, host: str) -> None:
        super().__init__(f"a live call to {host}: use a scripted adapter, a recording or a server on loopback")
        self.host = host
