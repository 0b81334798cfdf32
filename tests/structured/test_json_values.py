"""Values of JSON that are values of their types in metrics of objects, or are not."""

import collections
from typing import Literal

import pytest

from tensormetrics.structured import Family, derive, micro_average


@pytest.mark.parametrize(
    ("tp", "pred", "ref"),
    [
        (float, 12, 12.0),
        (float | None, 12, 12.0),
        (float | str, 12, 12.0),
        (list[float | None], [1, None], [1.0, None]),
        (dict[str, float | None], {"a": 1}, {"a": 1.0}),
        (int | None, 12.0, 12),
        (int | str, 12.0, 12),
        (Literal[1, 2] | None, 1.0, 1),
        (tuple[float, float], [1, 2], (1.0, 2.0)),
        (tuple[float, float] | None, [1, 2], (1.0, 2.0)),
        (list[int] | None, (1, 2), [1, 2]),
    ],
    ids=str,
)
def test_values_of_json_are_values_of_their_types(tp, pred, ref):
    for first, second in ((pred, ref), (ref, pred)):
        scores = Family(derive(list[tp]), micro_average(["f1"]))
        scores.update([[first]], [[second]])
        assert {key: float(value) for key, value in scores.compute().items()} == {"f1": 1.0}
        metric = derive(list[tp])
        assert metric.score([first], [second]) == metric.score([second], [second])
        assert metric([[first]] * 2, [[second]] * 2).tolist() == [metric.score([second], [second])] * 2


@pytest.mark.parametrize(
    ("tp", "pred", "ref"),
    [
        (int | None, 12.5, 12),
        (int | None, "12", 12),
        (float | None, "12", 12.0),
        (Literal[1, 2] | None, 1.5, 1),
        (tuple[float, float], [1], (1.0, 2.0)),
        (tuple[float, float] | None, "ab", (1.0, 2.0)),
        (list[str], {"a": 0}, ["a"]),
        (dict[str, int], [("a", 1)], {"a": 1}),
        (collections.Counter[str], ["a"], collections.Counter("a")),
    ],
    ids=str,
)
def test_json_values_of_other_types_are_invalid(tp, pred, ref):
    for error in (TypeError, ValueError):
        with pytest.raises(error, match=r"^preds\[0\]"):
            derive(list[tp]).score([pred], [ref])
        with pytest.raises(error, match=r"^refs\[0\]"):
            derive(list[tp]).score([ref], [pred])


def test_the_case_of_a_number_is_that_of_its_class_if_there_is_one():
    metric = derive(list[int | float])
    assert metric.score([1, 2.0], [1, 2.0]) == 2.0
    assert metric.score([1], [1.0]) == 0.0  # two cases
