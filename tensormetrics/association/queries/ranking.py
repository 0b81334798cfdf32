"""Rankings of models from tables of scores, and correlations of rankings."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...core.arguments import checks
from ...core.results.text_tables import import_pandas

if TYPE_CHECKING:
    import pandas as pd

METHODS = ("average", "min", "max", "first", "dense")
CORRELATIONS = ("spearman", "pearson", "kendall")


def create_ranking(
    results_dataframes: "Sequence[pd.DataFrame]", method: str = "first", ascending: bool = True
) -> "pd.DataFrame":
    """Rank the models by the last column of each table, which `aggregate_results` of `run_queries` appends.

    Rank 1 is the smallest value, with `ascending=False` the largest; `method` is the treatment of ties, as in
    `pandas.DataFrame.rank`; NaN has no rank. Columns of equal names get their position: "name (1)", "name (2)".

    >>> import pandas as pd
    >>> scores = {"WEAT": [0.9, 0.2], "RND": [0.3, 0.4]}  # of two models
    >>> tables = [pd.DataFrame({name: values}, ["small", "large"]) for name, values in scores.items()]
    >>> print(create_ranking(tables))
           WEAT  RND
    small   2.0  1.0
    large   1.0  2.0
    """
    pd = import_pandas()
    checks.check_choice("method", method, METHODS)
    if not isinstance(results_dataframes, list | tuple) or not results_dataframes:
        raise TypeError(f"results_dataframes: got {results_dataframes!r}, wanted a list of DataFrames")
    for i, table in enumerate(results_dataframes):
        check_table(f"results_dataframes[{i}]", table)
    columns = [table.iloc[:, -1] for table in results_dataframes]
    count = Counter(column.name for column in columns)
    names = [f"{c.name} ({i})" if count[c.name] > 1 else c.name for i, c in enumerate(columns, 1)]
    return pd.concat(columns, axis=1, keys=names).rank(method=method, ascending=ascending)


def calculate_ranking_correlations(
    rankings: "pd.DataFrame", method: str | Callable[[np.ndarray, np.ndarray], float] = "spearman"
) -> "pd.DataFrame":
    """Compute the correlations of all pairs of columns: "spearman", "pearson", "kendall" (tau-b) or a function.

    >>> import pandas as pd
    >>> scores = {"WEAT": [0.9, 0.2], "RND": [0.3, 0.4]}  # of two models
    >>> tables = [pd.DataFrame({name: values}, ["small", "large"]) for name, values in scores.items()]
    >>> print(calculate_ranking_correlations(create_ranking(tables)))
          WEAT  RND
    WEAT   1.0 -1.0
    RND   -1.0  1.0
    """
    check_table("rankings", rankings)
    if not callable(method):
        checks.check_choice("method", method, CORRELATIONS)
    return rankings.corr(_kendall if method == "kendall" else method)


def _kendall(u: np.ndarray, v: np.ndarray) -> float:
    # u, v: (n,)
    u, v = (np.sign(s[:, None] - s) for s in (u, v))
    scale = np.sqrt((u * u).sum() * (v * v).sum())
    return float((u * v).sum() / scale) if scale else np.nan


def check_table(name: str, table: Any) -> None:
    if not isinstance(table, import_pandas().DataFrame):
        raise TypeError(f"{name}: got a {type(table).__name__}, wanted a DataFrame")
    if table.empty:
        raise ValueError(f"{name}: got the shape {table.shape}, wanted at least one row and one column")
