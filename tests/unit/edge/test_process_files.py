"""Process files and `hw check`: whatever a file does, one clear answer and no traceback."""

import json

import pytest
from headwater_tools import cli
from headwater_tools.process_file import EXAMPLES, ProcessFileError, example, load

GOOD = """from headwater.process import Median, Process

p = Process("one", every=100, batch=10)
s = p.source("s", "v:i16", rate_hz=10, on="chest")
p.lake("out", s >> Median(k=3))
"""


@pytest.fixture
def file(tmp_path):
    def write(text, name="process.py"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def hw(*words, capsys):
    """Exit code, printed lines and the object of a command."""
    with pytest.raises(SystemExit) as end:
        cli.main([*words, "--json"])
    out = capsys.readouterr()
    *lines, last = out.out.splitlines()
    return end.value.code, lines, json.loads(last)


def test_a_process_file_leaves_its_process(file):
    assert load(file(GOOD)).name == "one"


def test_a_file_may_be_loaded_again_and_make_its_own_types_again(file):
    text = """from headwater.runtime.operator import Operator
from headwater.process import Process, operator


class Mine(Operator):
    IN = OUT = ("v:i16",)

    def run(self, x, n):
        return n


Mine = operator(Mine)
p = Process("one", every=100, batch=10)
p.lake("out", p.source("s", "v:i16", rate_hz=10, on="chest") >> Mine())
"""
    path = file(text)
    assert load(path).encode() == load(path).encode()


def test_one_process_in_two_variables_is_one(file):
    assert load(file(GOOD + "q = p\n")).name == "one"


@pytest.mark.parametrize(
    "text, line, what",
    [
        ("", 1, "no process"),
        ("x = 5\n", 1, "no process"),
        (GOOD + 'q = Process("two")\n', 6, "2 processes: p, q"),
        ("import os\nx = (\n", 2, "Python cannot read this: '(' was never closed"),
        ("x = 1\nraise ValueError('so')\n", 2, "ValueError: so"),
        ("def f():\n    return 1 / 0\n\nf()\n", 2, "ZeroDivisionError: division by zero"),
        (
            "x = 1\nimport nowhere_to_be_found\n",
            2,
            "ModuleNotFoundError: No module named 'nowhere_to_be_found'",
        ),
        ("x = 1\nexit(3)\n", 2, "the file ends the program"),
        (b"x = '\xff'\n", 1, "Python cannot read this: "),
        (b"x = 1\0\n", 1, "Python cannot read this: source code string cannot contain null bytes"),
        ("def f():\n    return f()\n\nf()\n", 2, "RecursionError: maximum recursion depth exceeded"),
        (GOOD + "s >> 5\n", 6, "TypeError: unsupported operand type(s) for >>: 'Stream' and 'int'"),
        (GOOD + "Median()()\n", 6, "Median(...) is connected to nothing: give it a stream"),
        ("from headwater.process import Proces\n", 1, "ImportError: headwater.process has no 'Proces'"),
    ],
)
def test_what_a_file_does_wrong_is_told_with_its_line(file, text, line, what):
    path = file(text)
    with pytest.raises(ProcessFileError) as e:
        load(path)
    problem = e.value.problem
    assert (problem.file, problem.line) == (str(path), line)
    assert problem.what.startswith(what)
    assert problem.cure


def test_check_describes_a_sound_process(file, capsys):
    path = file(GOOD)
    code, lines, answer = hw("check", str(path), capsys=capsys)
    assert code == 0
    assert 'warning: process: level="peer" has no spare host for the checkpoints of median' in lines.pop(0)
    assert lines[0] == (
        "process 'one', version %s: 2 vertices, 2 edges, 2 hosts, plan of %d bytes; "
        "checkpoints extended every 100, level peer" % (answer["hash"], answer["plan_bytes"])
    )
    assert lines[1].split() == ["vertex", "type", "runs", "on", "backed", "up", "by", "gives", "to"]
    assert lines[3].split() == ["median", "Median", "chest", "gateway", "v:i16", "lake", "out", "(gateway)"]
    assert answer["file"] == str(path)
    assert (answer["ok"], answer["process"], len(answer["problems"])) == (True, "one", 1)
    assert (answer["vertices"], answer["edges"], answer["hosts"]) == (2, 2, 2)
    assert len(answer["hash"]) == 16


def test_check_tells_every_problem_and_fails(file, capsys):
    path = file(GOOD.replace("i16", "i17").replace("k=3", "q=3").replace('"out"', '"o ut"'))
    code, lines, answer = hw("check", str(path), capsys=capsys)
    assert code == 1
    assert lines == [
        "%s:4: vertex 's': unknown type 'i17' of field 'v': use one of f32 f64 i16 i32 i64 i8 u16 u32 u64 u8."
        ' Write the alphabet like "t:u32 mV:i16".' % path,
        "%s:5: lake stream 'o ut': not a name. "
        "Use names with / between them, like cardio/ecg, at most 64 letters." % path,
        "%s:5: vertex 'median': unknown parameter 'q'. Median has k." % path,
        "%s:5: vertex 'median': parameter 'k' is missing. Give Median(k=...)." % path,
        "4 errors",
    ]
    assert (answer["ok"], answer["hash"]) == (False, None)
    assert answer["problems"][0]["line"] == 4
    assert sorted(answer["problems"][0]) == ["cure", "file", "line", "severity", "what", "where"]


def test_check_prints_warnings_and_passes(file, capsys):
    path = file(GOOD.replace("batch=10", 'batch=10, level="local"'))
    code, lines, answer = hw("check", str(path), capsys=capsys)
    assert code == 0
    assert lines[0].startswith("%s:3: warning: process: level=" % path)
    assert [p["severity"] for p in answer["problems"]] == ["warning"]


def test_check_fails_on_a_file_that_gives_no_process(file, capsys):
    path = file("x = (\n")
    code, lines, answer = hw("check", str(path), capsys=capsys)
    assert code == 1
    assert lines == [
        "%s:1: process file: Python cannot read this: '(' was never closed. Correct the line." % path
    ]
    assert answer["ok"] is False
    assert len(answer["problems"]) == 1


def test_check_of_a_file_that_is_not_there_is_bad_use(tmp_path, capsys):
    code, lines, answer = hw("check", str(tmp_path / "none.py"), capsys=capsys)
    assert (code, lines) == (2, [])
    assert answer == {"error": "%s: No such file or directory" % (tmp_path / "none.py")}
    assert hw("check", str(tmp_path), capsys=capsys)[0] == 2


def test_every_example_opens_with_a_sentence():
    names = sorted(path.stem for path in EXAMPLES.glob("*.py") if path.stem != "__init__")
    assert names == [
        "body",
        "cardio",
        "diamond",
        "outdoors",
        "own_operator",
        "sp1",
        "sp2",
        "sp3",
        "sp4",
        "telemonitoring",
        "ten",
        "ward",
    ]
    for name in names:
        assert example(name).read_text().startswith('"""')
