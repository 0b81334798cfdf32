import pytest
import torch
from raising import raises

from tensormetrics.posterior.summaries.table import format_table

HEADERS = ["Name", "Share", "95.0% HDI"]
ROWS = [
    {"Name": "a|b_&<c>", "Share": torch.tensor(0.5), "95.0% HDI": (torch.tensor(0.25), 0.75), "other": 1},
    {"Name": "d", "Share": 0.00005, "95.0% HDI": (-1.0, 10.0), "other": 2},
]

TEXTS = {
    "github": """\
| Name      |      Share |          95.0% HDI |
| --------- | ---------- | ------------------ |
| a\\|b_&<c> |     0.5000 |   [0.2500, 0.7500] |
| d         | 5.0000e-05 | [-1.0000, 10.0000] |""",
    "pipe": """\
| Name      |      Share |          95.0% HDI |
| --------- | ---------: | -----------------: |
| a\\|b_&<c> |     0.5000 |   [0.2500, 0.7500] |
| d         | 5.0000e-05 | [-1.0000, 10.0000] |""",
    "plain": """\
Name           Share           95.0% HDI
a|b_&<c>      0.5000    [0.2500, 0.7500]
d         5.0000e-05  [-1.0000, 10.0000]""",
    "csv": """\
Name,Share,95.0% HDI
a|b_&<c>,0.5000,"[0.2500, 0.7500]"
d,5.0000e-05,"[-1.0000, 10.0000]\"""",
    "latex": r"""\begin{tabular}{lrr}
\hline
Name & Share & 95.0\% HDI \\
\hline
a\textbar{}b\_\&\textless{}c\textgreater{} & 0.5000 & [0.2500, 0.7500] \\
d & 5.0000e-05 & [-1.0000, 10.0000] \\
\hline
\end{tabular}""",
    "html": """\
<table>
<thead>
<tr><th>Name</th><th>Share</th><th>95.0% HDI</th></tr>
</thead>
<tbody>
<tr><td>a|b_&amp;&lt;c&gt;</td><td>0.5000</td><td>[0.2500, 0.7500]</td></tr>
<tr><td>d</td><td>5.0000e-05</td><td>[-1.0000, 10.0000]</td></tr>
</tbody>
</table>""",
}


@pytest.mark.parametrize("table_fmt", TEXTS)
def test_format_table_texts_match(table_fmt):
    assert format_table(ROWS, HEADERS, table_fmt) == TEXTS[table_fmt]


def test_format_table_records_and_frames_contain_floats():
    records = format_table(ROWS, HEADERS, "records")
    assert records[0] == {"Name": "a|b_&<c>", "Share": 0.5, "95.0% HDI": (0.25, 0.75)}
    assert list(records[1]) == HEADERS and all(type(row["Share"]) is float for row in records)
    frame = format_table(ROWS, HEADERS, "pandas")
    assert list(frame.columns) == HEADERS and frame["Share"].dtype == float
    assert list(frame["95.0% HDI"]) == [(0.25, 0.75), (-1.0, 10.0)]
    assert format_table(ROWS, HEADERS, "pd").equals(frame)


def test_format_table_supports_formats_of_tabulate():
    assert "<w:" not in format_table(ROWS, HEADERS, "rst") and "5.0000e-05" in format_table(ROWS, HEADERS, "rst")
    with pytest.raises(ValueError, match="^precision: got -1, wanted an integer >= 0$"):
        format_table(ROWS, HEADERS, precision=-1)
    with raises(
        ValueError,
        "table_fmt: got 'word', wanted records, pandas, github, pipe, html, latex, csv, plain or a format of tabulate",
    ):
        format_table(ROWS, HEADERS, "word")


def test_format_table_precision_percent_and_blanks():
    rows = [{"x": 0.001, "y": 0.5, "n": 3, "z": None}, {"x": 0.0, "y": 0.123, "n": 4, "z": float("nan")}]
    text = format_table(rows, ["x", "y", "n", "z"], "csv", 3, blank_below=0.0, percent=["y"])
    assert text == "x,y,n,z\n1.000e-03,50.0%,3,\n,12.3%,4,nan"
    infinite = [{"x": -float("inf"), "y": float("inf")}]
    assert format_table(infinite, ["x", "y"], "plain").split() == ["x", "y", "-inf", "inf"]


def test_format_table_no_rows_has_headers():
    assert format_table([], ["A", "B"], "plain") == "  A    B"
    assert format_table([], ["A"], "records") == [] and list(format_table([], ["A"], "pd").columns) == ["A"]
    for table_fmt in TEXTS:
        assert "A" in format_table([], ["A", "B"], table_fmt)


@pytest.mark.parametrize(
    ("table_fmt", "package", "message"),
    [
        ("pd", "pandas", 'tables need pandas; write pip install "tensormetrics[tables]"'),
        (
            "rst",
            "tabulate",
            "table_fmt: got 'rst', wanted 'github', 'pipe', 'html', 'latex', 'csv', 'plain', or a format of tabulate, "
            'which is not installed; write pip install "tensormetrics[tables]"',
        ),
    ],
)
def test_format_table_missing_packages_raise(table_fmt, package, message, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, package, None)
    with raises(ImportError, message):
        format_table(ROWS, HEADERS, table_fmt)
