"""Formats, tables and exports of estimates and comparisons."""

import copy
import json
import math
import pickle
import shutil
import subprocess

import numpy as np
import pytest
import torch
from torch.utils._pytree import tree_leaves, tree_map

from tensormetrics import Comparison, Estimate, Table, compare
from tensormetrics.core.numbers import quantiles
from tensormetrics.core.results.text_tables import escaped_latex


def estimate(value=0.084, low=0.061, high=0.109, **fields):
    return Estimate(*(torch.tensor(x, dtype=torch.float64) for x in (value, low, high)), **fields)


def comparison(difference=0.049, low=0.042, high=0.056, p_value=0.001, p_better=0.99, p_rope=math.nan, **fields):
    values = (difference, low, high, p_value, p_better, p_rope)
    return Comparison(*(torch.tensor(x, dtype=torch.float64) for x in values), **fields)


@pytest.mark.parametrize(
    ("values", "spec", "text"),
    [
        ((0.0841, 0.0612, 0.1093), "", "0.084 [0.061, 0.109]"),
        ((0.0841, 0.0612, 0.1093), ".1%", "8.4% [6.1%, 10.9%]"),
        ((-1.5, -2.25, -0.75), ".2f", "-1.50 [-2.25, -0.75]"),
        ((0.5, math.nan, math.nan), "", "0.500"),
        ((1234.5, 1200.0, 1270.0), ".0f", "1234 [1200, 1270]"),
        ((0.0001, 0.00002, 0.0003), "", "0.0001 [2e-05, 0.0003]"),
        ((0.0, 0.0, 0.0), "", "0.000 [0.000, 0.000]"),
        ((2e6, 1e6, 3e6), "", "2e+06 [1e+06, 3e+06]"),
        ((0.0, 0.0, math.inf), "", "0.000 [0.000, inf]"),
    ],
)
def test_estimate_format_shows_value_and_ends(values, spec, text):
    assert format(estimate(*values), spec) == text


def test_estimate_of_several_values_as_text():
    values = torch.arange(1000, dtype=torch.float64)
    lines = str(Estimate(values, values, values, labels=tuple(f"c{i}" for i in range(1000)))).splitlines()
    assert lines[0] == "c0   0.000 [0.000, 0.000]" and lines[20] == "... 980 more" and len(lines) == 21
    two_by_two = Estimate(*[torch.eye(2, dtype=torch.float64)] * 3, labels=("a", "b"))
    assert str(two_by_two).splitlines()[2] == "1/a  0.000 [0.000, 0.000]"


def test_comparison_format_shows_sign_and_p_value():
    assert str(comparison()) == "+0.049 [+0.042, +0.056], p = 0.001"
    assert f"{comparison(p_value=0.0004):.1%}" == "+4.9% [+4.2%, +5.6%], p < 0.001"
    repr_of = repr(comparison(confidence=0.9, items=200, groups=5))
    assert repr_of == "+0.049 [+0.042, +0.056], p = 0.001, 90 %, 200 items in 5 groups, only 5 groups"


def test_result_compared_with_numbers_and_results():
    a = estimate()
    assert a > 0.05 and a <= 0.084 and a == 0.084 and a != 0.1 and not a == "0.084"
    assert a == estimate() and len({a, estimate()}) == 1
    assert torch.equal(Estimate(*torch.rand(3, 2)) > torch.tensor([2.0, -1.0]), torch.tensor([False, True]))
    with pytest.raises(TypeError, match=r"overlapping intervals are no test; write compare\(a, b\)"):
        a < estimate()  # noqa: B015
    assert estimate(high=math.nan) == estimate(high=math.nan, items=9) != a != comparison()
    assert comparison() == comparison() != comparison(p_value=0.002)
    assert [*map(float, round(estimate(), 2))] == [0.08, 0.06, 0.11]
    assert round(comparison(), 2).p_value == 0.001
    with pytest.raises(TypeError, match="truth of Estimate is ambiguous"):
        bool(a)
    with pytest.raises(TypeError, match=r"got 2 values, wanted one; write result\[0\] or result.value"):
        float(Estimate(*torch.rand(3, 2)))
    with pytest.raises(IndexError, match="write .difference, .low or .high"):
        comparison()[0]
    assert np.asarray(a).item() == float(a) == 0.084


def test_results_are_indexed_by_label_and_number():
    ends = torch.tensor([[0.1, 0.2], [0.0, 0.1], [0.3, 0.4]], dtype=torch.float64)
    result = Comparison(*ends, *ends, a=Estimate(*ends), p_corrected=ends[0], labels=("cat", "dog"))
    assert float(result["dog"]) == float(result[1]) == float(result["dog"].a) == float(result["dog"].p_corrected) == 0.2
    with pytest.raises(KeyError, match="got 'cow', wanted one of"):
        result["cow"]


@pytest.mark.parametrize(
    ("low", "high", "rope", "verdict", "mirrored"),
    [
        (0.02, 0.03, None, "better", "worse"),
        (-0.01, 0.03, None, "undecided", "undecided"),
        (0.02, 0.03, 0.01, "better by more than rope", "worse by more than rope"),
        (0.005, 0.03, 0.01, "better", "worse"),
        (-0.005, 0.008, 0.01, "equivalent", "equivalent"),
        (-0.005, 0.03, 0.01, "not worse", "not better"),
        (-0.05, 0.03, 0.01, "undecided", "undecided"),
        (math.nan, math.nan, 0.01, "undecided", "undecided"),
    ],
)
def test_comparison_verdict_follows_interval_and_rope(low, high, rope, verdict, mirrored):
    assert comparison(low=low, high=high, rope=rope).verdict == verdict
    assert comparison(low=low, high=high, rope=rope, higher_is_better=False).verdict == mirrored
    assert comparison(low=-high, high=-low, rope=rope).verdict == mirrored


def test_results_are_trees_pickles_and_dictionaries():
    result = comparison(a=estimate(), b=estimate(0.03), p_corrected=torch.tensor(0.25))
    assert len(tree_leaves(result)) == 13  # six numbers, the corrected p-value, and three of each estimate
    doubled = tree_map(lambda tensor: 2 * tensor, result)
    assert float(doubled.a) == 0.168 and float(doubled.p_corrected) == 0.5
    assert result.to(torch.float32).b.low.dtype == torch.float32
    for other in (pickle.loads(pickle.dumps(result)), copy.deepcopy(result)):
        assert Table.of({"": other}) == Table.of({"": result})
    assert result.to_dict()["a"]["value"] == 0.084 and json.dumps(estimate(labels=None).to_dict())


def test_results_to_frame_has_labels_and_ends():
    ends = torch.tensor([[0.1, 0.2], [0.0, 0.1], [0.3, 0.4]], dtype=torch.float64)
    frame = Estimate(*ends, labels=("cat", "dog")).to_frame()
    assert [*frame.columns] == ["value", "low", "high"] and frame.loc["dog", "high"] == 0.4
    columns = ["difference", "low", "high", "p_value", "p_better", "p_rope"]
    assert [*comparison().to_frame().columns] == [*columns, "verdict"]
    with_rope = comparison(rope=0.01, p_not_worse=torch.tensor(0.02), p_equivalent=torch.tensor(0.5)).to_frame()
    assert with_rope.iloc[0, 6:].tolist() == [pytest.approx(0.02), 0.5, "better by more than rope"]


def test_single_results_are_tables():
    difference = comparison(p_value=0.5, rope=0.01, p_rope=0.2, p_not_worse=torch.tensor(0.02), higher_is_better=False)
    cells = ["", "+0.05 [+0.04, +0.06]", "0.50", "0.99", "0.20", "0.02", "worse by more than rope"]
    assert [cell.strip() for cell in difference.to_markdown(2).splitlines()[-1].split("|")[1:-1]] == cells
    assert all(cell in difference.to_latex(2) for cell in cells)
    assert "<td>+0.049 [+0.042, +0.056]</td><td>0.500</td>" in difference._repr_html_()
    classes = estimate([0.084, math.nan], [0.061, -math.inf], [1.0, 1.0], labels=("cat", "dog"))
    assert [line.split(" | ")[0].strip("| ") for line in classes.to_markdown().splitlines()[2:]] == ["cat", "dog"]
    document = json.loads(classes.to_json())
    assert document["value"][1] is None and document["low"][1] == "-inf" and document["labels"] == ["cat", "dog"]


def test_results_plot_labels_axes():
    ends = torch.tensor([[0.1, 0.2], [0.0, 0.1], [0.3, 0.4]], dtype=torch.float64)
    _, axes = Estimate(*ends, labels=("cat", "dog")).plot()
    assert [label.get_text() for label in axes.get_yticklabels()] == ["cat", "dog"]
    _, panels = table().plot()
    assert [panel.get_xlabel() for panel in panels] == ["accuracy, higher is better", "loss, lower is better"]


def table(**texts):
    cells = [[estimate(0.8, 0.75, 0.85), 0.4, "x"], [estimate(0.84, 0.79, 0.89), 0.3, None]]
    return Table(["base", "lr^2_large"], {"acc": True, "loss": False, "note": None}, cells, index="model", **texts)


def test_table_str_and_markdown_align_columns():
    assert str(table(title="Runs")).splitlines() == [
        "Runs",
        "model       acc                    loss  note",
        "base        0.800 [0.750, 0.850]  0.400  x",
        "lr^2_large  0.840 [0.790, 0.890]  0.300",
    ]
    assert table().to_markdown(2).splitlines()[2] == "| base       | 0.80 [0.75, 0.85] | 0.40 | x    |"
    assert table(caption="p: corrected").to_markdown().endswith("|\n\np: corrected")
    assert "<td>0.800 [0.750, 0.850]</td>" in table()._repr_html_()


def test_table_to_latex_marks_best_values():
    assert table().to_latex(booktabs=True, label="tab:runs", caption="50% of $x$").splitlines() == [
        r"\begin{table}",
        r"\centering",
        r"\caption{50\% of \$x\$}",
        r"\label{tab:runs}",
        r"\begin{tabular}{lrrl}",
        r"\toprule",
        r"model & acc & loss & note \\",
        r"\midrule",
        r"base & 0.800 [0.750, 0.850] & 0.400 & x \\",
        r"lr\textasciicircum{}2\_large & \textbf{0.840} [0.790, 0.890] & \textbf{0.300} &  \\",
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    plus_minus = Table.of({"a": estimate(-0.2, -0.3, -0.1)}).to_latex(intervals="plusminus")
    assert r"a & $-$0.200 $\pm$ 0.100 \\" in plus_minus
    with pytest.raises(ValueError, match="label: got 'a b', wanted letters, digits"):
        table().to_latex(label="a b")
    with pytest.raises(ValueError, match="tied: this table was not made from metrics"):
        table().to_latex(bold="tied")


@pytest.mark.parametrize(
    ("text", "latex"),
    [
        ("lr^2", r"lr\textasciicircum{}2"),
        ("a~b_c", r"a\textasciitilde{}b\_c"),
        (r"C:\x{1}", r"C:\textbackslash{}x\{1\}"),
        ("P(A > B) & 50%", r"P(A \textgreater{} B) \& 50\%"),
        ("Δ ≤ 0.1 ± σ", r"$\Delta$ $\leq$ 0.1 $\pm$ $\sigma$"),
        ("Zoë, naïve", "Zoë, naïve"),
    ],
)
def test_escaped_latex_of_special_characters(text, latex):
    assert escaped_latex(text) == latex


def test_escaped_latex_of_unknown_characters_warns():
    with pytest.warns(UserWarning, match=r"'模' \(U\+6A21\): LaTeX's fonts may lack it"):
        assert escaped_latex("模") == "模"


@pytest.mark.slow
def test_table_latex_compiles_with_pdflatex(tmp_path):
    if shutil.which("pdflatex") is None:
        pytest.skip("there is no pdflatex")
    names = ["lr^2", "a~b_c", "<x>", "Δ", "50%", r"C:\x{1}", "Zoë"]
    text = Table(names, ["α ± β"], [[estimate(-0.1, -0.2)]] * len(names)).to_latex(caption="p < 0.05 & more")
    source = [r"\documentclass{article}\usepackage[utf8]{inputenc}\begin{document}", text, r"\end{document}"]
    (tmp_path / "table.tex").write_text("\n".join(source), encoding="utf-8")
    subprocess.run(["pdflatex", "-halt-on-error", "table.tex"], cwd=tmp_path, check=True, capture_output=True)


def test_table_json_round_trip_is_equal(tmp_path):
    cells = [
        [estimate(0.1 + 0.2, -math.inf, math.nan, confidence=0.9, items=3), 3, True, "inf", math.inf, math.nan],
        [comparison(a=estimate(), b=estimate(), p_corrected=torch.tensor(0.1)), None, False, None, -math.inf, 0.1],
    ]
    original = Table(["a", "b"], {name: None for name in "uvwxyz"}, cells, title="T", caption="C", index="model")
    back = Table.from_json(original.to_json(tmp_path / "table.json"))
    assert back == original == Table.from_json(tmp_path / "table.json") and hash(back) == hash(original)
    assert math.isnan(back["a", "u"].high) and float(back["a", "u"]) == 0.1 + 0.2 and back["a", "v"] == 3
    assert back["b", "u"].a == 0.084 and back["b", "v"] is None and back["a", "x"] == "inf" and back["a", "w"] is True
    assert back != original.select("u") and pickle.loads(pickle.dumps(original)) == original


def test_csv_has_all_digits(tmp_path):
    text = Table.of({"a": {"x": estimate(0.1 + 0.2), "d": comparison(), "n": 1 / 3}}).to_csv(tmp_path / "table.csv")
    header, row = text.splitlines()
    assert header == ",x,x/low,x/high,d,d/low,d/high,d/p_value,d/p_better,d/p_rope,n"
    assert row.startswith("a,0.30000000000000004,0.061,0.109,0.049,") and row.endswith(",0.3333333333333333")
    assert (tmp_path / "table.csv").read_text() == text


def test_table_to_frame_has_ends_or_text():
    frame = table().to_frame()
    assert [*frame.columns] == ["acc", "acc/low", "acc/high", "loss", "note"] and frame.index.name == "model"
    assert frame.loc["base", "acc/low"] == 0.75
    assert table().to_frame("text").loc["base", "acc"] == "0.800 [0.750, 0.850]"


def test_table_indexing_returns_columns_rows_and_cells():
    result = table()
    column = result.columns["acc"]
    assert isinstance(column, Estimate) and column.labels == result.rows and float(column["base"]) == 0.8
    assert torch.equal(result.columns["loss"], torch.tensor([0.4, 0.3], dtype=torch.float64))
    assert result.columns["note"] == ("x", None) and [*result["base"]] == [*result.columns] == ["acc", "loss", "note"]
    assert result.sort("acc").rows == result.sort("loss").rows == ("lr^2_large", "base")
    assert result.sort("acc", descending=False).rows == result.rows and result.select("loss")["base"] == {"loss": 0.4}
    for key, message in (("c", "row: got 'c', wanted one of base"), (("base", "f1"), "column: got 'f1', wanted")):
        with pytest.raises(KeyError, match=message):
            result[key]


def test_tables_are_joined_by_rows_and_columns():
    a, b = Table.of({"a": {"x": 1, "y": 2}}), Table.of({"b": {"x": 3}, "a": {"z": 5}})
    both = a | b
    assert (
        both.rows == ("a", "b")
        and both["a"] == {"x": 1, "y": 2, "z": 5}
        and both["b"] == {"x": 3, "y": None, "z": None}
    )
    with pytest.raises(ValueError, match="both tables have a cell 'a', 'x'; rename the row of one"):
        a | a


def test_results_of_several_values_fill_columns():
    per_class = Estimate(*torch.rand(3, 2, 2).sort(0).values[[1, 0, 2]], labels=("cat", "dog"))
    assert [*Table.of({"m": {"tpr": per_class, "n": torch.ones(2)}}).columns] == [
        *("tpr/0/cat", "tpr/0/dog", "tpr/1/cat", "tpr/1/dog"),
        *("n/0", "n/1"),
    ]


def test_tables_are_immutable():
    with pytest.raises(AttributeError, match="a Table is immutable"):
        table().title = "new"


def test_empty_tables_have_every_form():
    empty = Table([], ["x"], [])
    assert str(empty) and empty.to_csv() == ",x\n" and Table.from_json(empty.to_json()) == empty and empty.to_latex()


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.95, 0.999])
@pytest.mark.parametrize("count", [1, 2, 7, 1000])
def test_quantiles_of_large_samples_are_those_of_small_ones(count, confidence, monkeypatch):
    samples = torch.randn(count, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    samples[:, 1], samples[: count // 2, 2], samples[0, 3] = 0.5, 1.0, math.inf
    expected = quantiles.equal_tailed_interval(samples, confidence)
    monkeypatch.setattr(quantiles, "LARGE", 1)
    for end, other in zip(quantiles.equal_tailed_interval(samples, confidence), expected, strict=True):
        torch.testing.assert_close(end, other, rtol=1e-12, atol=1e-12, equal_nan=True)
    tails = [(1 - confidence) / 2, (1 + confidence) / 2]
    assert np.allclose(np.quantile(samples[:, 0], tails), [end[0] for end in expected])


@pytest.mark.parametrize("factor", [100, np.float32(100), np.int64(100), -2])
def test_estimate_times_number_scales_value_and_ends(factor):
    scaled = [*map(float, estimate(0.5, 0.25, 0.75) * factor)]
    assert scaled == ([50, 25, 75] if factor > 0 else [-1, -1.5, -0.5])


@pytest.mark.parametrize("factor", [100, -100, 0.5])
def test_scaled_comparison_is_that_of_scaled_scores(factor):
    a, b = np.random.default_rng(0).normal([[0.3], [0.0]], 1.0, (2, 40))
    options = {True: "greater", False: "less"}
    scaled = factor * compare(a, b, rope=0.1, alternative="greater")
    wanted = compare(
        factor * a, factor * b, rope=0.1 * abs(factor), alternative=options[factor > 0], higher_is_better=factor > 0
    )
    fields = "difference", "low", "high", "p_value", "p_better", "p_rope", "p_not_worse", "p_equivalent", "se", "sd"
    for field in fields:
        assert float(getattr(scaled, field)) == pytest.approx(float(getattr(wanted, field)), rel=1e-9), field
    for side in ("a", "b"):
        assert [*map(float, getattr(scaled, side))] == pytest.approx([*map(float, getattr(wanted, side))])
    assert scaled.verdict == wanted.verdict and scaled.assurance(0) == wanted.assurance(0)
    assert (scaled.rope, scaled.alternative) == (pytest.approx(wanted.rope), wanted.alternative)


@pytest.mark.parametrize("factor", [0, math.nan, math.inf])
def test_comparison_is_multiplied_by_finite_numbers_other_than_0(factor):
    with pytest.raises(ValueError, match="factor: got .*, wanted a finite number other than 0"):
        factor * comparison()


def test_models_survive_json():
    table = compare({"a": [1, 1, 1, 1] * 10, "b": [1, 1, 1, 0] * 10, "c": [1, 0, 0, 0] * 10})
    back = Table.from_json(table.to_json())
    assert back == table and back.models == table.models
    assert (back.best, back.ranks) == (("a",), {"a": (1, 1), "b": (2, 2), "c": (3, 3)})
