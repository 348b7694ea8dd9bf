"""The outputs in the documents are what their commands print; `python -m headwater_tools.documents
--update` helps."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from headwater_tools import documents


def test_every_output_is_what_its_command_prints() -> None:
    found = documents.difference()
    assert not found, "\n" + found


def test_an_output_that_has_changed_is_replaced_and_a_duration_alone_is_not() -> None:
    texts = [path.read_text() for path in documents.pages()]
    ran: list[str] = []

    def run(words: str, folder: Path) -> str:
        ran.append(words)
        assert {path.name for path in folder.iterdir()} == {"greenhouse.py", "wrong.py"}
        return "says; 1.5 s\n"

    first = documents.first_process()
    new = documents.updated(texts, first, run)
    assert {"--help", "check greenhouse.py", "check wrong.py"} <= set(ran)
    assert len(ran) == len(set(ran))  # a command that several documents show runs once
    assert sum(text.count("says; 1.5 s\n") for text in new) >= len(ran)
    assert documents.updated(new, first, lambda words, folder: "says; 70.1 s\n") == new


@pytest.mark.parametrize("words, status", [("check greenhouse.py", 1), ("sim greenhouse.py --seeds 1:3", 2)])
def test_what_a_command_prints_that_fails_is_not_written(
    words: str, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = documents.first_process().replace("within_ms=20000", "within_ms=-5")
    assert first != documents.first_process()
    text = "```python\n%s```\n\n```\n$ ./hw %s\nas it was\n```\n" % (first, words)
    monkeypatch.setattr(documents, "README", tmp_path / "README.md")
    monkeypatch.setattr(documents, "DOCS", tmp_path / "docs")
    documents.README.write_text(text)
    monkeypatch.setattr(sys, "argv", ["documents", "--update"])
    with pytest.raises(SystemExit, match="`./hw %s` ended with status %d, not 0" % (words, status)):
        documents.main()
    assert documents.README.read_text() == text


def test_a_command_about_the_mistakes_that_finds_none_is_not_written(tmp_path: Path) -> None:
    (tmp_path / "wrong.py").write_text(documents.first_process())
    with pytest.raises(documents.UserError, match="ended with status 0, not 1"):
        documents._hw("check wrong.py", tmp_path)
