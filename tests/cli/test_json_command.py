"""`tensormetrics json`: golden cases, formats of files, and errors."""

import json
import math
from functools import partial
from pathlib import Path

import pytest
import running

run = partial(running.run, "json")

CASES = json.loads((Path(__file__).parent.parent / "structured" / "extraction.json").read_text(encoding="utf-8"))[
    "cases"
]
CASES = [case for case in CASES if "expected" in case]


def option_words(options):
    words = []
    for name, value in options.items():
        if name == "fields":
            for path, keywords in value.items():
                ((key, text),) = keywords.items()
                words += ["--field", f"{path}={text}" if key == "compare" else f"{path}={key}:{text}"]
        else:
            words += ["--option", f"{name}={json.dumps(value)}"]
    return words


@pytest.mark.parametrize(  # tests/structured computes all of them in the first tier
    "case", [pytest.param(case, marks=pytest.mark.full if i % 4 else (), id=case["id"]) for i, case in enumerate(CASES)]
)
def test_json_golden_cases_equal_stored_scores(case, tmp_path):
    preds, refs, schema, output = (tmp_path / name for name in ("p.jsonl", "r.jsonl", "schema.json", "o.json"))
    preds.write_text("".join(f"{json.dumps(answer)}\n" for answer in case["predictions"]), encoding="utf-8")
    refs.write_text("".join(f"{json.dumps(reference)}\n" for reference in case["references"]), encoding="utf-8")
    words = option_words(case["options"])
    if case["schema"] is not None:
        schema.write_text(json.dumps(case["schema"]))
        words += ["--schema", schema]
    result = run(preds, refs, *words, "--replicates", 0, "--json", output)
    assert result.exit_code in (0, 3), result.output
    answer, expected = json.loads(output.read_text()), case["expected"]
    rows = {
        row["name"]: {name: cell["value"] for name, cell in row["cells"].items()} for row in answer["tables"][0]["rows"]
    }
    assert set(rows) - {"micro (leaves)"} == set(expected["paths"])
    for path, expected_row in expected["paths"].items():
        for name in ("support", "correct", "missed", "invented"):
            assert rows[path][name] == expected_row[name], (path, name)
        for name in ("precision", "recall", "f1"):
            assert same(rows[path][name], expected_row[name]), (path, name)
    for name in ("readable", "valid", "exact", "similarity"):
        assert same(answer["scores"][name], expected["documents"][name])


def same(value, expected_row):
    if value is None or expected_row is None or isinstance(value, str):
        return expected_row is None and (value is None or math.isnan(float(value)))
    return value == pytest.approx(expected_row, abs=1e-9)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("r.jsonl").write_text('{"a": 1, "b": "x"}\n{"a": 2, "b": "y"}\n{"a": 3, "b": "z"}\n\n')
    Path("p.jsonl").write_text('{"a": 1, "b": "x"}\n\nIt is {"a": 3, "b": "Z"}\n')
    Path("log.jsonl").write_text('{"id": 3, "out": "{\\"a\\": 3}"}\n{"id": 1, "out": {"a": 1, "b": "x"}}\n')
    Path("gold.jsonl").write_text(
        '{"id": 1, "c": "m", "a": 1, "b": "x"}\n{"id": 2, "c": "m", "a": 2}\n{"id": 3, "c": "n", "a": 3}\n'
    )
    Path("schema.py").write_text("from typing import TypedDict\n\nclass Doc(TypedDict):\n    a: int\n    b: str\n")
    return tmp_path


def scores(*arguments):
    return running.answer("json", *arguments, "--replicates", 0)["scores"]


def test_json_empty_lines_are_unreadable_answers(folder):
    answer = scores("p.jsonl", "r.jsonl", "--schema", "schema.py:Doc")
    assert answer["readable"] == pytest.approx(2 / 3) and answer["f1[a]"] == pytest.approx(0.8)
    Path("short.jsonl").write_bytes(b'\xef\xbb\xbf{"a": 1, "b": "\xe2\x80\xa8"}\r\n{"a": 2}\r\n\xff\n\n\n')
    assert scores("short.jsonl", "r.jsonl")["readable"] == pytest.approx(2 / 3)
    Path("array.json").write_text('[\n {"a": 1, "b": "x"},\n "no",\n null\n]')
    assert scores("array.json", "r.jsonl")["f1[a]"] == scores("array.json", "r.jsonl")["f1[b]"] == 0.5


def test_json_documents_are_matched_by_id_and_resampled_by_group(folder):
    answer = scores("log.jsonl", "gold.jsonl", "--id", "id", "--answer", "out", "--group", "c")
    assert answer["readable"] == pytest.approx(2 / 3) and answer["f1[a]"] == pytest.approx(0.8)
    result = run("log.jsonl", "gold.jsonl", "--id", "id", "--answer", "out", "--group", "c", "--explain", "2")
    assert "2   similarity 0.00" in result.stdout and "unreadable: no answer" in result.stdout


def test_json_unknown_required_score_prints_and_writes_nothing(folder):
    result = run("p.jsonl", "r.jsonl", "--require", "nothing=1", "--json", "out.json")
    assert (result.exit_code, result.stdout) == (2, "") and "--require: got 'nothing'" in result.stderr
    assert not Path("out.json").exists()
    assert "--explain: got '9', wanted the id or the line" in run("p.jsonl", "r.jsonl", "--explain", "9").stderr


@pytest.mark.parametrize("output", [("--format", "json"), ("--json", "-")])
def test_json_explanations_leave_json_on_stdout(folder, output):
    result = run("p.jsonl", "r.jsonl", "--explain", "2", *output)
    assert json.loads(result.stdout)["command"] == "json" and "2   similarity" in result.stderr


def test_json_saved_schema_reproduces_the_scores(folder):
    result = run("p.jsonl", "r.jsonl", "--save-schema", "s.json", "--html", "page.html", "--replicates", 50)
    assert result.exit_code == 0 and "types inferred" in result.stdout and "wrote page.html" in result.stderr
    assert json.loads(Path("s.json").read_text())["properties"] == {"a": {"type": "number"}, "b": {"type": "string"}}
    expected = scores("p.jsonl", "r.jsonl", "--schema", "s.json", "--option", "extra=invented")
    assert expected == scores("p.jsonl", "r.jsonl")
    assert scores("p.jsonl", "r.jsonl", "--field", "b=casefold")["f1[b]"] == pytest.approx(0.8)


def test_json_compare_reports_differences_by_field(folder):
    result = run("p.jsonl", "r.jsonl", "--compare", "r.jsonl", "--html", "page.html", "--replicates", 100)
    assert result.exit_code == 0 and "corrected p" in result.stdout and "Comparison" in Path("page.html").read_text()


def test_json_requirement_sets_the_status(folder):
    assert run("p.jsonl", "r.jsonl", "--require", "micro-f1=0.5").exit_code == 0
    result = run("p.jsonl", "r.jsonl", "--require", "f1[a]=0.9")
    assert result.exit_code == 4 and "not met: f1[a] is 0.8, required 0.9" in result.stderr
    assert "f1[a]" in run("p.jsonl", "r.jsonl", "--require", "f1=0.9").stderr


def test_json_invalid_references_are_named_by_line(folder):
    Path("bad.jsonl").write_text('{"a": 1, "b": "x"}\n{"a": "2", "b": "y"}\n{"a": 3, "b": "z"}\n')
    result = run("r.jsonl", "bad.jsonl", "--schema", "schema.py:Doc")
    assert "bad.jsonl, line 2: a: got '2', wanted int; the predictions conform" in result.stderr
    Path("bad.jsonl").write_bytes(b'{"a": 1}\n{"a": "\xff"}\n{}\n')
    assert "bad.jsonl, line 2: byte 7 is not UTF-8" in run("r.jsonl", "bad.jsonl").stderr
