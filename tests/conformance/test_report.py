"""A report says the same as an object, as JSON, as a table and as annotations."""

from __future__ import annotations

import json

from isthmus.conformance.report import Finding, Report, Standing

WRONG = Finding("call-ids", "error", "chat: the id 'c' is used twice", "c", "unique ids", "keep the provider's id")
ODD = Finding("streams-live", "warning", "all of it, 100%, came: late")
LAWS = [Standing("call-ids", "fail"), Standing("streams-live", "pass"), Standing("wire-cut", "n/a", "no recordings")]


def test_only_an_error_makes_it_wrong() -> None:
    """Warnings leave a report ok."""
    assert Report("X", [ODD], LAWS).ok
    report = Report("X", [ODD, WRONG], LAWS)
    assert not report.ok
    assert report.errors == [WRONG]
    assert [report.standing(law) for law in ("call-ids", "wire-cut", "nobody")] == ["fail", "n/a", "n/a"]


def test_it_is_json_of_plain_values() -> None:
    """The JSON holds findings and laws with the fields that they have."""
    shown = json.loads(Report("X", [WRONG], LAWS, 1.5).to_json())
    assert shown["findings"][0]["expected"] == "unique ids"
    assert shown["laws"][2] == {"id": "wire-cut", "status": "n/a", "reason": "no recordings"}
    assert (shown["ok"], shown["adapter"], shown["seconds"]) == (False, "X", 1.5)


def test_the_table_says_what_to_do() -> None:
    """Each finding has its remedy beside it; all laws are listed where that is asked for."""
    report = Report("X", [WRONG], LAWS)
    assert "fix:      keep the provider's id" in report.table()
    assert report.table().endswith("X does not conform: 1 pass, 1 fail, 1 n/a (0.0 s)")
    assert "n/a   wire-cut  (no recordings)" in report.table(every=True)


def test_annotations_are_escaped() -> None:
    """Line ends, per cent signs, colons and commas cannot end an annotation early."""
    lines = Report("X", [WRONG, ODD], LAWS).annotations("src/a,b.py").splitlines()
    assert lines[0].startswith("::error file=src/a%2Cb.py,title=conformance%3A call-ids::chat: the id 'c' is used")
    assert "%0A" in lines[0]
    assert lines[1].startswith("::warning ")
    assert "100%25" in lines[1]
