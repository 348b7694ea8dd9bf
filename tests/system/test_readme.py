"""The outputs in README.md are what its commands print; `python -m headwater_tools.readme --update` helps."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from headwater_tools import readme


def test_every_output_is_what_its_command_prints() -> None:
    found = readme.difference()
    assert not found, "\n" + found


def test_an_output_that_has_changed_is_replaced_and_a_duration_alone_is_not() -> None:
    text = readme.README.read_text()
    ran: list[str] = []

    def run(words: str, folder: Path) -> str:
        ran.append(words)
        assert {path.name for path in folder.iterdir()} == {"greenhouse.py", "wrong.py"}
        return "says; 1.5 s\n"

    new = readme.updated(text, run)
    assert ran[:2] == ["--help", "check greenhouse.py"]
    assert new.count("says; 1.5 s\n") == len(ran)
    assert readme.updated(new, lambda words, folder: "says; 70.1 s\n") == new


@pytest.mark.parametrize("words, status", [("check greenhouse.py", 1), ("sim greenhouse.py --seeds 1:3", 2)])
def test_what_a_command_prints_that_fails_is_not_written(
    words: str, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = readme._PROCESS.search(readme.README.read_text())
    assert process is not None
    refused = process[0].replace("within_ms=5000", "within_ms=-5")
    assert refused != process[0]
    text = "%s\n\n```\n$ ./hw %s\nas it was\n```\n" % (refused, words)
    monkeypatch.setattr(readme, "README", tmp_path / "README.md")
    readme.README.write_text(text)
    monkeypatch.setattr(sys, "argv", ["readme", "--update"])
    with pytest.raises(SystemExit, match="`./hw %s` ended with status %d, not 0" % (words, status)):
        readme.main()
    assert readme.README.read_text() == text


def test_a_command_about_the_mistakes_that_finds_none_is_not_written(tmp_path: Path) -> None:
    process = readme._PROCESS.search(readme.README.read_text())
    assert process is not None
    (tmp_path / "wrong.py").write_text(process[1])
    with pytest.raises(readme.Trouble, match="ended with status 0, not 1"):
        readme._hw("check wrong.py", tmp_path)
