"""The gateway's configuration: every key with a default and a comment, every problem at once."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from headwater_gateway import UserError, config


def problems(tmp_path: Path, text: str) -> list[str]:
    file = tmp_path / "gateway.toml"
    file.write_text(text)
    with pytest.raises(config.ConfigError) as caught:
        config.read(file)
    return caught.value.problems


def test_the_file_of_defaults_means_the_defaults(tmp_path: Path) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text(config.text())
    read = config.read(file)
    for name, keys in config.KEYS.items():
        for key, k in keys.items():
            assert getattr(getattr(read, name), key) == k.default


def test_every_default_stands_in_the_file_and_is_taken_when_it_is_uncommented(tmp_path: Path) -> None:
    lines = [
        line[1:] if line.startswith("#") and not line.startswith("# ") else line
        for line in config.text().splitlines()
    ]
    given = tomllib.loads("\n".join(lines))
    assert given == {name: {key: k.default for key, k in keys.items()} for name, keys in config.KEYS.items()}
    file = tmp_path / "gateway.toml"
    file.write_text("\n".join(lines))
    config.read(file)


def test_every_key_has_a_comment() -> None:
    for keys in config.KEYS.values():
        assert all(k.comment.rstrip().endswith((".", ",", "address")) for k in keys.values())


def test_all_problems_are_told_at_once_with_key_value_and_cure(tmp_path: Path) -> None:
    text = '[mqtt]\nprot = 1\nport = "x"\n[lak]\nacks = "a"\n[store]\ncommit_ms = -4\n[log]\nformat = "xml"\n'
    assert problems(tmp_path, text) == [
        "key mqtt.prot is unknown: did you mean port?",
        "mqtt.port = 'x': it is a whole number, like 8883",
        "section [lak] is unknown: did you mean lake?",
        "store.commit_ms = -4: use 0 to 1000",
        'log.format = "xml": use one of "text", "json"',
    ]


def test_a_key_in_the_wrong_section_is_sent_home(tmp_path: Path) -> None:
    assert problems(tmp_path, "landing = 'x'\n") == ["key landing is in no section: write it below [lake]"]
    (text,) = problems(tmp_path, "[store]\nlanding = 'x'\n")
    assert "write it below [lake], which knows a key of this name" in text
    (text,) = problems(tmp_path, "[log]\nport = 1\n")
    assert "write it below [mqtt] or [http]" in text


def test_true_is_no_number_and_a_whole_number_will_do_for_any(tmp_path: Path) -> None:
    assert problems(tmp_path, "[mqtt]\nport = true\n") == [
        "mqtt.port = True: it is a whole number, like 8883"
    ]
    file = tmp_path / "gateway.toml"
    file.write_text("[lake]\nsegment_s = 3\n")
    assert config.read(file).lake.segment_s == 3


def test_what_belongs_together_is_asked_for_together(tmp_path: Path) -> None:
    assert problems(tmp_path, '[mqtt]\nuser = ""\ncert = "x"\nca = ""\n') == [
        "mqtt.user and mqtt.password_file: give both or neither",
        "mqtt.cert and mqtt.key: give both or neither",
        'mqtt.ca = "": with mqtt.tls it is needed to check the broker; name the file',
    ]


def test_a_file_that_is_none_is_told_in_a_sentence(tmp_path: Path) -> None:
    assert "invalid TOML" in problems(tmp_path, "mqtt = {{")[0]


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("[mqtt]\nhost = broker.local\n", "Strings need quotes"),
        ("[mqtt]\ntls = True\n", "booleans are lower-case"),
        ("[log]\n[mqtt]\n[log]\n", "Write each section once"),
        ("[mqtt]\nport = 1\nport = 2\n", "A key may occur once"),
        ("[mqtt]\nhost = 'x\n", "missing quote"),
        ("[mqtt\n", "Write a section as [SECTION]"),
        ("[mqtt]\nport 8883\n", "Write KEY = VALUE"),
        ('[gateway]\ndata = "C:\\data"\n', "Write a backslash in a string as two"),
    ],
)
def test_the_hint_fits_the_error(tmp_path: Path, text: str, hint: str) -> None:
    (said,) = problems(tmp_path, text)
    assert hint in said, said
    with pytest.raises(UserError, match="hw gateway init"):
        config.read(tmp_path / "nowhere.toml")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="UTF-8"):
        config.read(tmp_path / "binary")


def test_paths_start_at_the_folder_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text("")
    read = config.read(file)
    assert read.path(read.gateway.data) == tmp_path / "data"
    assert read.path("/var/lib/x") == Path("/var/lib/x")
