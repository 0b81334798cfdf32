"""Rankings of models and their correlations."""

import numpy as np
import pytest
from raising import raises

from tensormetrics.association import calculate_ranking_correlations, create_ranking

pd = pytest.importorskip("pandas")
MODELS = ["a", "b", "c", "d"]


def frame(values, name="RND: x average score"):
    return pd.DataFrame({"some query": [9.0, 8, 7, 6], name: values}, MODELS)


def test_create_ranking_ranks_last_columns():
    tables = [frame([0.3, 0.1, np.nan, 0.2]), frame([1.0, 2, 2, 0], "WEAT: x sum score")]
    ranking = create_ranking(tables)
    assert list(ranking.columns) == ["RND: x average score", "WEAT: x sum score"] and list(ranking.index) == MODELS
    np.testing.assert_array_equal(ranking, np.array([[3, 1, np.nan, 2], [2, 3, 4, 1]]).T)
    descending = create_ranking(tables, "average", ascending=False)
    np.testing.assert_array_equal(descending, np.array([[1, 3, np.nan, 2], [3, 1.5, 1.5, 4]]).T)
    for method, ranks in ("min", [2, 3, 3, 1]), ("max", [2, 4, 4, 1]), ("dense", [2, 3, 3, 1]):
        np.testing.assert_array_equal(create_ranking(tables, method).iloc[:, 1], ranks)


def test_create_ranking_equal_names_get_numbers():
    tables = [frame([1, 2, 3, 4]), frame([4, 3, 2, 1], "other"), frame([1, 3, 2, 4])]
    ranking = create_ranking(tables)
    assert list(ranking.columns) == ["RND: x average score (1)", "other", "RND: x average score (3)"]


def test_calculate_ranking_correlations_equals_expected_values():
    ranking = pd.DataFrame({"p": [1.0, 2, 3, 4], "q": [1.0, 3, 2, 4], "r": [4.0, 3, 2, 1], "ties": [1.0, 1, 2, 2]})
    for method, expected in ("spearman", 0.8), ("pearson", 0.8), ("kendall", 2 / 3):
        got = calculate_ranking_correlations(ranking, method)
        assert list(got.index) == list(got.columns) == ["p", "q", "r", "ties"]
        assert got.loc["p", "q"] == got.loc["q", "p"] == pytest.approx(expected)
        assert got.loc["p", "r"] == pytest.approx(-1) and (np.diag(got) == 1).all()
    scipy = pytest.importorskip("scipy.stats")
    expected = scipy.kendalltau(ranking["p"], ranking["ties"]).statistic
    assert calculate_ranking_correlations(ranking, "kendall").loc["p", "ties"] == pytest.approx(expected)
    assert calculate_ranking_correlations(ranking, lambda u, v: 0.25).loc["p", "q"] == 0.25


def test_rankings_invalid_arguments_raise():
    with raises(ValueError, "method: got 'mean', wanted one of 'average', 'min', 'max', 'first', 'dense'"):
        create_ranking([frame([1, 2, 3, 4])], "mean")
    with raises(TypeError, "results_dataframes: got [], wanted a list of DataFrames"):
        create_ranking([])
    with raises(TypeError, "results_dataframes[1]: got a dict, wanted a DataFrame"):
        create_ranking([frame([1, 2, 3, 4]), {}])
    with raises(ValueError, "rankings: got the shape (0, 0), wanted at least one row and one column"):
        calculate_ranking_correlations(pd.DataFrame())
    with raises(ValueError, "method: got 'cosine', wanted one of 'spearman', 'pearson', 'kendall'"):
        calculate_ranking_correlations(frame([1, 2, 3, 4]), "cosine")
