from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from isthmus.console.toolbox import calculate, current_time


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("2 + 3 * 4", "14"),
        ("(2 + 3) * 4", "20"),
        ("-7 // 2", "-4"),
        ("-7 % 3", "2"),
        ("0.1 + 0.2", "0.3"),
        ("1 / 8", "0.125"),
        ("-1 / 8", "-0.125"),
        ("1 / 3", "1/3 (about 0.333333333333333333333333333333)"),
        ("2 ** 100", str(2**100)),
        ("2 ** -2", "0.25"),
        ("1.50 * 2", "3"),
        ("123456789012345678901234567890.5 * 2", "246913578024691357802469135781"),
        ("1 ** 999999999999", "1"),
        ("(-1) ** 999999999999", "-1"),
        ("0 ** 5", "0"),
        ("0 ** 0", "1"),
        ("+5", "5"),
        ("1_000 + 1", "1001"),
        ("1e3", "1000"),
        ("  7 ", "7"),
    ],
)
def test_arithmetic_is_exact(expression: str, result: str) -> None:
    """F30: whole numbers and decimals of any size are worked out without rounding."""
    assert calculate(expression) == result


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("1 / 0", "division by zero"),
        ("0 ** -1", "division by zero"),
        ("5 % 0", "division by zero"),
        ("2 ^ 3", r"write a power as \*\*"),
        ("1,000 + 1", "thousands separators"),
        ("2 ** 0.5", "only whole exponents"),
        ("9 ** 9 ** 9", "digits"),
        ("10 ** 5000", "digits"),
        ("1e999999999", "too large"),
        ("9" * 4500, "not an arithmetic|digits|large"),
        ("(" * 3000 + "1" + ")" * 3000, "not an arithmetic"),
        ("1 +", "not an arithmetic"),
        ("", "not an arithmetic"),
        ("x + 1", "names are not known"),
        ("abs(1)", "functions are not known"),
        ("__import__('os').system('touch ran')", "functions are not known"),
        ("'a' * 10", "only numbers"),
        ("True + 1", "only numbers"),
        ("1 if 1 else 2", "only numbers"),
        ("1j", "only numbers"),
        ("1 << 3", "only numbers"),
        ("1" * 9000, "longer than"),
        ("(10 ** 3000) * (10 ** 3000)", "digits"),
    ],
)
def test_anything_else_is_refused_with_a_reason(expression: str, said: str) -> None:
    """What is no arithmetic, or would not end, is an error that the model can read."""
    with pytest.raises(ValueError, match=said):
        calculate(expression)


@pytest.mark.parametrize(
    ("zone", "key"),
    [
        ("Europe/Paris", "Europe/Paris"),
        ("europe/paris", "Europe/Paris"),
        ("Paris", "Europe/Paris"),
        ("Paris, France", "Europe/Paris"),
        ("new york", "America/New_York"),
        ("New_York", "America/New_York"),
        ("San Francisco", "America/Los_Angeles"),
        ("Tokyo", "Asia/Tokyo"),
        ("UTC", "UTC"),
        (" 'Asia/Kolkata' ", "Asia/Kolkata"),
        ("India/Mayotte", "Indian/Mayotte"),
        ("America/St. Lucia", "America/St_Lucia"),
    ],
)
def test_the_time_is_told_for_zones_and_cities(zone: str, key: str) -> None:
    """Zones and large cities are found, however they are written."""
    before, told, after = datetime.now(ZoneInfo(key)), current_time(zone), datetime.now(ZoneInfo(key))
    assert told in (f"{before:%H:%M}", f"{after:%H:%M}")


@pytest.mark.parametrize("zone", ["Atlantis", "", "../../etc/passwd", "/etc/passwd"])
def test_an_unknown_zone_is_refused(zone: str) -> None:
    """The error repeats what was asked for, and nothing outside the database is read."""
    with pytest.raises(ValueError, match="no time zone is called"):
        current_time(zone)


def test_a_misspelt_zone_gets_a_guess() -> None:
    """The nearest zones are suggested."""
    with pytest.raises(ValueError, match=r"did you mean .*Europe/Paris"):
        current_time("Europe/Pariss")
