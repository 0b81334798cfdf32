import math

import numpy as np
import pytest
import torch
from raising import raises

from tensormetrics.posterior import (
    ConfMatIOError,
    ConfMatIOWarning,
    compute_confusion_matrix,
    load_csv,
    validate_confusion_matrix,
)

MATRIX = torch.tensor([[3, 1, 0], [0, 2, 5], [1, 0, 4]])


@pytest.mark.parametrize("matrix", [MATRIX, MATRIX.tolist(), MATRIX.numpy(), MATRIX.float(), MATRIX.short()])
def test_validate_confusion_matrix_converts_valid_input(matrix):
    validated = validate_confusion_matrix(matrix)
    assert validated.dtype == torch.float64 and torch.equal(validated, MATRIX.double())


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        ([1, 2], "got shape (2,), wanted (C, C) with C >= 2"),
        ([[1, 2, 3], [4, 5, 6]], "got shape (2, 3), wanted (C, C) with C >= 2"),
        ([[1]], "got shape (1, 1), wanted (C, C) with C >= 2"),
        ([[1, math.nan], [1, 1]], "got nan at [0, 1], wanted finite counts >= 0"),
        ([[1, 2], [math.inf, 1]], "got inf at [1, 0], wanted finite counts >= 0"),
        ([[1, 2], [3, -1]], "got -1.0 at [1, 1], wanted finite counts >= 0"),
        ([[1, 2], [1e300, 1]], "got 1e+300 in row 1, wanted rows that add up to at most 1e+37"),
        ([[6e37, 6e37], [1, 1]], "got 6e+37 in row 0, wanted rows that add up to at most 1e+37"),
        ([[1j, 2], [3, 1]], "got complex numbers, wanted counts"),
        (
            [[0, 0], [3, 1]],
            "row 0 is empty, so nothing is known of that class; "
            "leave the class out, or give a positive confusion_prior",
        ),
    ],
)
def test_validate_confusion_matrix_invalid_input_raises(matrix, message):
    with pytest.raises(ConfMatIOError) as caught:
        validate_confusion_matrix(matrix)
    assert str(caught.value) == f"confusion_matrix: {message}" and isinstance(caught.value, ValueError)


@pytest.mark.parametrize("matrix", [[[1, 2], [3]], [["a", "b"], ["c", "d"]], None])
def test_validate_confusion_matrix_other_objects_raise(matrix):
    with pytest.raises(ConfMatIOError, match="^confusion_matrix: wanted rows of numbers, all of one length; "):
        validate_confusion_matrix(matrix)


def test_validate_confusion_matrix_empty_classes_warn_or_pass():
    assert validate_confusion_matrix([[0, 0], [1, 2]], allow_empty_rows=True)[0].sum() == 0
    with pytest.warns(ConfMatIOWarning) as caught:
        validate_confusion_matrix([[2, 0], [1, 0]])
    assert str(caught[0].message) == "confusion_matrix: class 1 is never predicted, so its precision is undefined"


@pytest.mark.parametrize("axis", [1, 0, (0, 1)], ids=str)
def test_validate_confusion_matrix_normalized_warns(axis):
    matrix = MATRIX.numpy() / MATRIX.numpy().sum(axis, keepdims=True)
    with pytest.warns(ConfMatIOWarning, match="got fractions that add up to 1, which count as one item, wanted counts"):
        validate_confusion_matrix(matrix.round(2))
    validate_confusion_matrix(40 * matrix)


def test_load_csv_matrix_or_error_message(tmp_path):
    path = tmp_path / "matrix.csv"
    path.write_text("3, 1, 0\n0, 2.0, 5\n\n1, 0, 4\n")
    assert torch.equal(load_csv(path), MATRIX.double())
    path.write_text("3;1\n0;2")
    assert load_csv(path, delimiter=";").tolist() == [[3, 1], [0, 2]]
    for text, message in (
        ("3,1\n2\n", ", line 2: got 1 columns, wanted 2 as above"),
        ("3,1\n2,x\n", ", line 2: got 'x', wanted a count"),
        ("3,1\n2,1_0\n", ", line 2: got '1_0', wanted a count"),
        ("3,1\n2,\u0661\u0662\n", ", line 2: got '\u0661\u0662', wanted a count"),
        ("3,1\n2,inf\n", ", line 2: got 'inf', wanted a count"),
        ("3,1\n2,\n", ", line 2: got '', wanted a count"),
        ("a,b\n3,1\n", ": rows are called ['3'], columns ['b'], wanted the same names"),
        ("a,a\n3,1\n1,2\n", ": got classes called ['a', 'a'], wanted distinct names"),
        ("a,\n3,1\n1,2\n", ": got classes called ['a', ''], wanted distinct names"),
        ("1,2,3\n", ": got 1 rows of 3 columns, wanted a square, with at most one row and one column of names"),
        ("4,1\n9,1\n2,8\n", ": got 3 rows of 2 columns, wanted a square, with at most one row and one column of names"),
        ('3,"1\n2,1\n', ", line 2: unexpected end of data"),
        ("1e300,1\n1,2\n", None),
    ):  # fmt: skip
        path.write_text(text, encoding="utf-8")
        with pytest.raises(ConfMatIOError) as caught:
            load_csv(path)
        assert message is None or str(caught.value) == f"{path}{message}"
    with pytest.raises(FileNotFoundError):
        load_csv(tmp_path / "none.csv")


COUNTS = np.array([[30, 1, 2], [0, 25, 4], [3, 0, 1]])
EMPTY = np.array([[30, 1, 2], [0, 25, 4], [0, 0, 0]])  # no items of a class


@pytest.mark.parametrize("counts", [COUNTS, COUNTS / 4, EMPTY])
@pytest.mark.parametrize("names", [["cat", "dog", "a, b"], [0, 1, 2], ["1", "x", "0"]])
@pytest.mark.parametrize("separator", [",", ";", "\t"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])  # the second as spreadsheets write it
def test_load_csv_reads_files_of_pandas(names, separator, encoding, counts, tmp_path):
    pandas = pytest.importorskip("pandas")
    path, frame = tmp_path / "matrix.csv", pandas.DataFrame(counts, names, names)
    text = [str(name) for name in names]
    for index, header in (True, True), (False, True), (True, False), (False, False):
        frame.to_csv(path, sep=separator, index=index, header=header, encoding=encoding)
        matrix, labels = load_csv(path, with_labels=True)
        assert matrix.tolist() == counts.tolist() and labels == (text if index or header else None)
        assert load_csv(path, delimiter=separator).tolist() == counts.tolist()
    numbered = pandas.DataFrame(counts, [2, 5, 7], [2, 5, 7])
    numbered.to_csv(path, sep=separator, encoding=encoding)
    assert load_csv(path, with_labels=True)[1] == ["2", "5", "7"]
    frame.rename_axis("truth").to_csv(path, sep=separator, encoding=encoding)
    assert load_csv(path, with_labels=True)[1] == text


def test_load_csv_reads_crosstab_and_spreadsheets(tmp_path):
    pandas = pytest.importorskip("pandas")
    path = tmp_path / "matrix.csv"
    truth, answer = ["cat", "dog", "cat", "emu"], ["cat", "emu", "dog", "emu"]
    pandas.crosstab(pandas.Series(truth, name="truth"), pandas.Series(answer, name="answer")).to_csv(path)
    matrix, labels = load_csv(path, with_labels=True)
    assert labels == ["cat", "dog", "emu"] and matrix.tolist() == [[1, 1, 0], [0, 0, 1], [0, 0, 1]]
    path.write_bytes("\tcat\tdog\r\ncat\t3\t1\r\ndog\t0\t2\r\n\r\n".encode("utf-16"))  # "Unicode text"
    assert load_csv(path, encoding="utf-16", with_labels=True)[1] == ["cat", "dog"]
    assert load_csv(path, with_labels=True)[1] == ["cat", "dog"]
    with pytest.raises(ConfMatIOError, match=f"^{path}, line 1: got the byte 0xff, which is no utf-8; name the enc"):
        load_csv(path, encoding="utf-8")
    path.write_bytes("a,b\n1,2\n\xe9,4\n".encode("cp1252"))
    hint = f"in cp1252, as Windows writes it, this is '\xe9': write iconv -f cp1252 -t utf-8 {path} > NEW"
    with raises(ConfMatIOError, f"{path}, line 3: got the byte 0xe9, wanted text in UTF-8; {hint}"):
        load_csv(path)


@pytest.mark.parametrize("kind", [list, np.array, torch.tensor])
def test_compute_confusion_matrix_counts_integer_labels(kind):
    true, pred = kind([0, 2, 2, 2, 0]), kind([0, 0, 2, 2, 2])
    assert compute_confusion_matrix(true, pred).tolist() == [[1, 1], [1, 2]]
    assert compute_confusion_matrix(true, pred, num_classes=3).tolist() == [[1, 0, 1], [0, 0, 0], [1, 0, 2]]
    assert compute_confusion_matrix(true, pred, labels=[2, 0]).tolist() == [[2, 1], [1, 1]]


def test_compute_confusion_matrix_counts_string_labels():
    counts = compute_confusion_matrix(["dog", "cat", "dog"], ["dog", "dog", "cat"])
    assert counts.tolist() == [[0, 1], [1, 1]] and counts.dtype == torch.int64
    assert compute_confusion_matrix([], [], num_classes=2).tolist() == [[0, 0], [0, 0]]
    assert compute_confusion_matrix([], []).shape == (0, 0)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (([0, 1], [0]), {}, "lengths differ: y_true has 2, y_pred has 1"),
        (([0, 1], [0, 3]), {"labels": [0, 1]}, "y_pred: got 3, which is none of the labels [0, 1]"),
        (([0, 5], [0, 1]), {"num_classes": 2}, "y_true: got 5, which is none of the labels [0, 1]"),
        (([0, 1], [0, 1]), {"labels": [0, 0]}, "labels: got [0, 0], wanted distinct ones"),
        (([0], [0]), {"labels": [0, 1], "num_classes": 2}, "labels, num_classes: got both, wanted one"),
        (([[0]], [0]), {}, "y_true: got shape (1, 1), wanted a one-dimensional list of labels"),
        (([None, "a"], ["a", "a"]), {}, "y_true, y_pred, labels: got NoneType and str, wanted words or numbers alone"),
        (
            ([None, "a"], ["a", "a"]),
            {"labels": ["a", None]},
            "y_true, y_pred, labels: got NoneType and str, wanted words or numbers alone",
        ),
        (([0], [0]), {"num_classes": 1}, "num_classes: got 1, wanted an integer >= 2"),
    ],
)
def test_compute_confusion_matrix_invalid_labels_raise(arguments, options, message):
    with raises(ValueError, message):
        compute_confusion_matrix(*arguments, **options)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (";cat;dog\ncat;90,5;6,0\ndog;5;88\n", [[90.5, 6], [5, 88]]),
        (";cat;dog\ncat;1.090,5;6\ndog;5;88\n", [[1090.5, 6], [5, 88]]),
        (";cat;dog\ncat;1.234.567;6\ndog;5;1.088\n", [[1234567, 6], [5, 1088]]),
        ("cat\tdog\n0.125\t6.5\n5\t88\n", [[0.125, 6.5], [5, 88]]),
        (',cat,dog\ncat,"1,090",6\ndog,5,1.088\n', [[1090, 6], [5, 1.088]]),
        (";cat;dog\ncat;1\u00a0090,5;6\ndog;5;12\u202f088\n", [[1090.5, 6], [5, 12088]]),
        (";cat;dog\ncat;1'090.5;6\ndog;5;1\u2019234\u2019088\n", [[1090.5, 6], [5, 1234088]]),
        ("sep=;\n;cat;dog;\ncat;90;6;\ndog;5;88;\n;;;\n", [[90, 6], [5, 88]]),
        *(
            (f"{head}\r\n{mark}cat{mark}dog\r\ncat{mark}90{mark}6\r\ndog{mark}5{mark}88\r\n", [[90, 6], [5, 88]])
            for head, mark in (("SEP=;", ";"), ('"sep=;"', ";"), ("sep=|", "|"))
        ),
    ],
)
def test_load_csv_reads_number_formats_of_spreadsheets(tmp_path, text, expected):
    (tmp_path / "m.csv").write_text(text)
    assert load_csv(tmp_path / "m.csv").tolist() == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (";cat;dog\ncat;1.090;6\ndog;5;88\n", r"line 2: got '1\.090', wanted one sign for decimals"),
        (";cat;dog\ncat;1,5;6\ndog;5;8.8\n", r"line 2: got '1,5', wanted one sign for decimals"),
        (',cat,dog\ncat,"1,09",6\ndog,5,88\n', r"line 2: got '1,09', wanted one sign for decimals"),
        (",cat,dog,All\ncat,90,6,96\ndog,5,88,93\nAll,95,94,189\n", "the last row and column are the totals"),
        *((text, "the file is empty, wanted rows of counts") for text in ("", "\n", " \n\n")),
    ],
)
def test_load_csv_ambiguous_numbers_or_no_rows_raise(tmp_path, text, message):
    (tmp_path / "m.csv").write_text(text)
    with pytest.raises(ConfMatIOError, match=message):
        load_csv(tmp_path / "m.csv")


@pytest.mark.parametrize("name", ["two\nlines", "two\r\nlines", "one\u2028cell", "one\x0bcell", "one\x85cell"])
@pytest.mark.parametrize("quote", ['"', ""])
def test_load_csv_line_separators_in_names_are_read(tmp_path, name, quote):
    if not quote and "lines" in name:
        return
    cell = f"{quote}{name}{quote}"
    (tmp_path / "m.csv").write_bytes(f",{cell},dog\n{cell},90,6\ndog,5,88\n".encode())
    assert load_csv(tmp_path / "m.csv", with_labels=True)[1] == [name, "dog"]


def test_load_csv_invalid_first_row_names_value(tmp_path):
    for first, wrong in ("10%,2", "10%"), ("1,", ""), ("inf,2", "inf"):
        (tmp_path / "m.csv").write_text(f"{first}\n3,4\n")
        with pytest.raises(ConfMatIOError, match=f"wanted the same names, or a count instead of '{wrong}'"):
            load_csv(tmp_path / "m.csv")
    for delimiter in ("", ";;", 5):
        with pytest.raises(ValueError, match="^delimiter: got .*, wanted None or one character$"):
            load_csv(tmp_path / "m.csv", delimiter=delimiter)
    for encoding in "utf-9", "hex":
        with pytest.raises(ValueError, match=f"^encoding: got '{encoding}', wanted None or an encoding of Python"):
            load_csv(tmp_path / "m.csv", encoding=encoding)
