"""The two harmless tools of `isthmus chat --tools`: the time in a place, and exact arithmetic."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from datetime import datetime
from decimal import Decimal, localcontext
from difflib import get_close_matches
from fractions import Fraction
from typing import Annotated
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

_MOST_BITS = 13_000
"""The most bits of a numerator or denominator: just under the 4300 digits that Python writes out."""

_MOST_CHARACTERS = 8_000

# Large cities that the time-zone database knows only by a neighbour's name.
_CITIES: Mapping[str, str] = {
    "bangalore": "Asia/Kolkata",
    "barcelona": "Europe/Madrid",
    "beijing": "Asia/Shanghai",
    "boston": "America/New_York",
    "delhi": "Asia/Kolkata",
    "frankfurt": "Europe/Berlin",
    "geneva": "Europe/Zurich",
    "hamburg": "Europe/Berlin",
    "houston": "America/Chicago",
    "kyoto": "Asia/Tokyo",
    "lyon": "Europe/Paris",
    "miami": "America/New_York",
    "milan": "Europe/Rome",
    "montreal": "America/Toronto",
    "mumbai": "Asia/Kolkata",
    "munich": "Europe/Berlin",
    "new delhi": "Asia/Kolkata",
    "osaka": "Asia/Tokyo",
    "rio de janeiro": "America/Sao_Paulo",
    "san francisco": "America/Los_Angeles",
    "seattle": "America/Los_Angeles",
    "shenzhen": "Asia/Shanghai",
    "washington": "America/New_York",
}


def current_time(zone: Annotated[str, "A time zone such as Europe/Paris, or a large city"]) -> str:
    """Tell the time of now in a time zone or a large city."""
    return f"{datetime.now(_zone(zone)):%H:%M}"


def _zone(name: str) -> ZoneInfo:
    wanted = name.strip().strip("\"'").lower()
    city = wanted.split(",")[0].strip()
    if city in _CITIES:
        return ZoneInfo(_CITIES[city])
    spelled: dict[str, str] = {}
    by_city: dict[str, str] = {}
    for key in sorted(available_timezones()):
        spelled[key.lower()] = key
        if "/" in key:
            by_city.setdefault(key.rsplit("/", 1)[1].lower().replace("_", " "), key)
    plain = wanted.replace(". ", "_").replace(".", "_").replace(" ", "_")
    place = plain.rsplit("/", 1)[-1].replace("_", " ")
    found = spelled.get(plain) or by_city.get(place) or by_city.get(city)
    if found is None:
        near = get_close_matches(plain, spelled, n=3, cutoff=0.5)
        guess = f"; did you mean {', '.join(spelled[item] for item in near)}?" if near else ""
        raise ValueError(f"no time zone is called {name!r}{guess}")
    try:
        return ZoneInfo(found)
    except (ZoneInfoNotFoundError, ValueError):
        raise ValueError(f"no time zone is called {name!r}") from None


def calculate(expression: Annotated[str, "e.g. (2 + 3) * 4.5 / 7 ** 2, with + - * / // % ** and parentheses"]) -> str:
    """Work out an arithmetic expression exactly, with whole numbers and decimals of any size."""
    if len(expression) > _MOST_CHARACTERS:
        raise ValueError(f"the expression is longer than {_MOST_CHARACTERS} characters")
    text = expression.strip()
    try:
        tree = ast.parse(text, mode="eval")
        return _spelled(_Evaluation(text).value(tree.body))
    except ZeroDivisionError:
        raise ValueError("division by zero") from None
    except (SyntaxError, MemoryError, RecursionError):
        raise ValueError(f"not an arithmetic expression: {expression!r:.200}") from None


_OPERATORS: Mapping[type, Callable[[Fraction, Fraction], Fraction | int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_HINTS: Mapping[type, str] = {
    ast.BitXor: "^ is not known: write a power as **",
    ast.Tuple: "write numbers without thousands separators, and a decimal point, not a comma",
    ast.Call: "functions are not known: only numbers, + - * / // % ** and parentheses",
    ast.Name: "names are not known: only numbers, + - * / // % ** and parentheses",
}


class _Evaluation:
    """Evaluates one parsed expression; numbers are read from its text, so that decimals stay exact."""

    def __init__(self, text: str) -> None:
        self._text = text

    def value(self, node: ast.expr) -> Fraction:
        """The exact value of a node; raises ValueError for anything but arithmetic."""
        if isinstance(node, ast.Constant):
            return self._number(node)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.UAdd | ast.USub):
            inner = self.value(node.operand)
            return -inner if isinstance(node.op, ast.USub) else inner
        if isinstance(node, ast.BinOp):
            left, right = self.value(node.left), self.value(node.right)
            if isinstance(node.op, ast.Pow):
                return _power(left, right)
            if type(node.op) in _OPERATORS:
                return _bounded(Fraction(_OPERATORS[type(node.op)](left, right)))
            raise _refused(node.op)
        raise _refused(node)

    def _number(self, node: ast.Constant) -> Fraction:
        if isinstance(node.value, bool) or not isinstance(node.value, int | float):
            raise _refused(node)
        if isinstance(node.value, int):
            return _bounded(Fraction(node.value))
        digits = ast.get_source_segment(self._text, node) or repr(node.value)
        number = Decimal(digits.replace("_", ""))
        if abs(number.adjusted()) > _MOST_BITS:
            raise ValueError("a number is too large")
        return _bounded(Fraction(number))


def _refused(node: ast.AST) -> ValueError:
    return ValueError(_HINTS.get(type(node), "only numbers, + - * / // % ** and parentheses are known"))


def _bits(number: Fraction) -> int:
    return max(number.numerator.bit_length(), number.denominator.bit_length())


def _bounded(number: Fraction) -> Fraction:
    if _bits(number) > _MOST_BITS:
        raise ValueError("the result has more than 3900 digits")
    return number


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator != 1:
        raise ValueError("only whole exponents are exact")
    size = abs(exponent.numerator)
    if size > 1 and _bits(base) > 1 and (_bits(base) - 1) * size > _MOST_BITS:
        raise ValueError("the result has more than 3900 digits")
    if _bits(base) <= 1:
        return _small_power(base, exponent.numerator)
    return _bounded(Fraction(base**exponent.numerator))


def _small_power(base: Fraction, exponent: int) -> Fraction:
    """A power of -1, 0 or 1, whatever the exponent."""
    if base == 0:
        return base ** min(exponent, 1)
    return Fraction(1 if base == 1 or exponent % 2 == 0 else -1)


def _spelled(number: Fraction) -> str:
    """The number written out exactly: as a whole number or a decimal, else as a fraction with a decimal beside it."""
    if number.denominator == 1:
        return str(number.numerator)
    rest, places = number.denominator, 0
    for factor in (2, 5):
        count = 0
        while rest % factor == 0:
            rest, count = rest // factor, count + 1
        places = max(places, count)
    if rest == 1:
        digits = str(abs(number.numerator) * 10**places // number.denominator).rjust(places + 1, "0")
        return f"{'-' if number < 0 else ''}{digits[:-places]}.{digits[-places:]}"
    with localcontext() as context:
        context.prec = 30
        return f"{number} (about {Decimal(number.numerator) / Decimal(number.denominator)})"
