"""The outputs in README.md are what its commands print; `python -m headwater_tools.readme --update` helps."""

from __future__ import annotations

from pathlib import Path

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
