"""The base class: what its states cost and what happens to them."""

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor

from tensormetrics import association, compare, interval, posterior, uncertainty
from tensormetrics.core.metric.base import Metric
from tensormetrics.uncertainty import BrierScore


class Rows(Metric):
    """Keeps rows and their number; answers their sum."""

    def __init__(self) -> None:
        super().__init__()
        self.add_rows("rows")
        self.add_state("count", torch.tensor(0), "sum")

    def update(self, rows: Tensor) -> None:
        self.append_rows("rows", rows)
        self.count = self.count + len(rows)

    def compute(self) -> Tensor:
        return self.rows.sum(0)


def test_storage_doubles():
    metric, addresses = Rows(), set()
    for step in range(1000):
        metric.update(torch.full((3, 2), float(step)))
        addresses.add(metric.rows.data_ptr())
    assert metric.rows.shape == (3000, 2) and metric.count == 3000
    assert len(addresses) <= 12  # log2(1000) reallocations, not 1000
    assert torch.equal(metric.rows[::3, 0], torch.arange(1000.0))


@pytest.mark.parametrize("inference", [False, True])
def test_forward_costs_the_batch(inference):
    """Forward on a full state neither moves it nor touches more memory than the batch needs."""
    metric = Rows()
    with torch.inference_mode(inference):
        metric.update(torch.ones(100_000, 2))
        metric.update(torch.ones(1, 2))
        address = metric.rows.data_ptr()
        for _ in range(10):
            assert metric(torch.ones(3, 2)).tolist() == [3, 3]
    assert metric.rows.data_ptr() == address and metric.rows.shape == (100_031, 2)


def test_a_state_once_seen_does_not_change():
    metric = Rows()
    metric.update(torch.zeros(4, 2))
    seen = metric.rows
    other = Rows()
    other.merge_state({"rows": seen, "count": metric.count})
    other.update(torch.ones(1, 2))
    metric.update(torch.full((1, 2), 5.0))
    metric.reset()
    metric.update(torch.full((9, 2), 7.0))
    assert torch.equal(seen, torch.zeros(4, 2)) and other.rows[4].tolist() == [1, 1]


def test_rows_beyond_a_loaded_state_are_not_written():
    larger = torch.zeros(10, 2)
    metric = Rows()
    metric.load_state_dict({"rows": larger[:4], "count": torch.tensor(4)}, strict=False)
    metric.update(torch.ones(3, 2))
    assert metric.rows.shape == (7, 2) and not larger.any()


def test_pickle_holds_the_rows_and_no_spare_room():
    metric = Rows()
    for _ in range(2):
        metric.update(torch.ones(1000, 2))
    metric.update(torch.ones(1, 2))
    spare = len(metric._stores["rows"]) - 2001
    assert spare > 1500
    assert len(pickle.dumps(metric)) < len(pickle.dumps(torch.ones(2001, 2))) + 5000


def test_dtypes_are_widened_and_kinds_are_not_mixed():
    metric = Rows()
    metric.update(torch.ones(2, 2, dtype=torch.float32))
    metric.update(torch.full((1, 2), 1 / 3, dtype=torch.float64))
    assert metric.rows.dtype == torch.float64 and metric.rows[2, 0] == 1 / 3
    with pytest.raises(
        ValueError, match=r"rows: got rows of shape \(3,\) and torch.float32 after rows of shape \(2,\)"
    ):
        metric.update(torch.ones(1, 3))
    with pytest.raises(ValueError, match="torch.int64 after rows of shape .* call reset"):
        metric.update(torch.ones(1, 2, dtype=torch.int64))
    assert metric.rows.shape == (3, 2) and metric.count == 3 and metric.update_count == 2


def test_results_are_not_the_state():
    class Count(Rows):
        def compute(self) -> Tensor:
            return self.count

    metric = Count()
    metric.update(torch.ones(2, 1))
    value = metric.compute()
    value += 100
    metric.update(torch.ones(1, 1))
    assert metric.compute() == 3


def test_gradient_flows_through_forward_and_not_into_the_state():
    class Total(Metric):
        def __init__(self) -> None:
            super().__init__()
            self.add_state("total", torch.tensor(0.0), "sum")

        def update(self, x: Tensor) -> None:
            self.total = self.total + x.sum()

        def compute(self) -> Tensor:
            return 2 * self.total

    metric, x = Total(), torch.ones(3, requires_grad=True)
    metric(x).backward()
    assert x.grad.tolist() == [2, 2, 2] and not metric.total.requires_grad and metric.compute() == 6
    assert not metric._forward_cache.requires_grad


@pytest.mark.parametrize(
    ("incoming", "message"),
    [
        (torch.nn.Linear(1, 1), "incoming_state: got Linear, wanted Rows, its metric_state, or a list of these"),
        ({"rows": torch.zeros(1, 2)}, "incoming_state: lacks ['count']; pass a metric or its metric_state"),
    ],
)
def test_merging_something_else(incoming, message):
    with pytest.raises(ValueError) as error:
        Rows().merge_state(incoming)
    assert str(error.value) == message


def test_an_update_or_merge_that_fails_half_way_leaves_no_trace():
    class Fails(Rows):
        def update(self, rows: Tensor) -> None:
            super().update(rows)
            if rows.min() < 0:
                raise ZeroDivisionError

    metric = Fails()
    metric.update(torch.ones(2, 2))
    value = metric.compute()
    for call in (metric.update, metric):
        with pytest.raises(ZeroDivisionError):
            call(-torch.ones(1, 2))
    with pytest.raises(AttributeError):
        metric.merge_state({"rows": torch.ones(1, 2), "count": None})
    assert metric.compute() is value and metric.update_count == 1
    metric.update(torch.full((1, 2), 4.0))
    assert metric.rows.tolist() == [[1, 1], [1, 1], [4, 4]] and metric.count == 3


def test_several_states_are_merged_in_order_all_or_none():
    parts = [Rows() for _ in range(3)]
    for i, part in enumerate(parts):
        part.update(torch.full((1, 2), float(i)))
    whole, *others = parts
    with pytest.raises(ValueError, match="lacks"):
        whole.merge_state([others[0], {}])
    assert whole.rows.tolist() == [[0, 0]] and whole.update_count == 1
    whole.merge_state([others[0], others[1].metric_state])
    assert whole.rows.tolist() == [[0, 0], [1, 1], [2, 2]] and whole.update_count == 3


def test_merge_state_other_option_raises_and_changes_nothing():
    metrics = [BrierScore(replicates=9, seed=seed) for seed in (0, 1)]
    for metric in metrics:
        metric.update(torch.full((4,), 0.5), torch.tensor([0, 1, 0, 1]), ids=[1, 2, 3, 4])
    for incoming in (metrics[1], [metrics[0].metric_state, metrics[1]]):
        with pytest.raises(ValueError, match="^seed: got 1 of the incoming metric, wanted 0; merge equal options$"):
            metrics[0].merge_state(incoming)
    assert metrics[0].update_count == 1 and metrics[0].sums.tolist() == [1, 4]


def test_a_failing_compute_leaves_the_state_in_order():
    class Fails(Rows):
        def compute(self) -> Tensor:
            raise ZeroDivisionError

    metric = Fails()
    metric.update(torch.ones(2, 2))
    with pytest.raises(ZeroDivisionError):
        metric.compute()
    metric.update(torch.ones(1, 2))
    assert not metric._is_synced and metric.rows.shape == (3, 2)


def test_a_copy_has_a_lock_of_its_own():
    metric = Rows()
    metric.update(torch.ones(1, 2))
    copies = [copy.deepcopy(metric), copy.copy(metric), pickle.loads(pickle.dumps(metric))]
    with metric._lock, ThreadPoolExecutor(1) as other:
        for twin in copies:
            other.submit(twin.update, torch.ones(2, 2)).result(timeout=10)
            assert twin.count == 3


def test_a_metric_may_be_asked_from_its_own_compute():
    class Nested(Rows):
        def compute(self) -> Tensor:
            return len(pickle.dumps(self.metric_state)) * copy.deepcopy(self).count

    metric = Nested()
    metric.update(torch.ones(2, 2))
    assert metric.compute() > 2


def test_sums_of_another_shape_are_not_loaded():
    metric = Rows()
    metric.update(torch.ones(2, 2))
    with pytest.raises(RuntimeError, match=r"size mismatch for count: got \(3,\), wanted \(\)"):
        metric.load_state_dict({"count": torch.ones(3)}, strict=False)
    assert metric.count == 2


@pytest.mark.parametrize("convert", [lambda m: m.to(torch.bfloat16), lambda m: m.half(), lambda m: m.to(torch.float16)])
def test_a_model_of_half_precision_leaves_the_states_as_they_are(convert):
    metric = BrierScore()
    model = torch.nn.Sequential(torch.nn.Linear(1, 1), metric)
    metric.update(torch.full((1001,), 0.3), torch.ones(1001, dtype=torch.int64))
    wanted = metric.compute()
    kinds = {name: state.dtype for name, state in metric.metric_state.items()}
    convert(model)
    assert model[0].weight.dtype != torch.float32
    assert {name: state.dtype for name, state in metric.metric_state.items()} == kinds
    assert metric.compute() == wanted
    metric.reset()
    metric.update(torch.full((1001,), 0.3), torch.ones(1001, dtype=torch.int64))
    assert {name: state.dtype for name, state in metric.metric_state.items()} == kinds
    metric.set_dtype(torch.float16)
    assert torch.float16 in {state.dtype for state in metric.metric_state.values()}


def test_doors_take_what_is_made_already_and_say_what_to_write():
    study = posterior.Study(0, metrics={"acc": {}, "f1": {}})
    study.add_experiment("a", [[90, 10], [12, 88]])
    table = interval(study)
    assert table == study.table() == interval(table) and interval(table["a", "acc"]) is table["a", "acc"]
    assert interval(study, confidence=0.5) != interval(study, seed=1) != table and study.confidence == 0.95
    words = torch.eye(4).unbind(0)
    model = association.WordEmbeddingModel.from_tensor(torch.stack(words), ["a", "b", "c", "d"])
    query = association.Query([["a"], ["b"]], [["c"], ["d"]])
    for made in association.WEAT().run_query(query, model), association.run_queries(association.WEAT, [query], [model]):
        with pytest.raises(ValueError, match="without an interval; write replicates=1000"):
            interval(made)
    for call in (lambda: interval(table, seed=1), lambda: interval(table["a", "acc"], confidence=0.9)):
        with pytest.raises(ValueError, match="interval that is made; ask the metric"):
            call()
    with pytest.raises(TypeError, match=r"a: got a Study, .*; write Study.compare\(\)"):
        compare(study)


def test_rows_of_unlike_lengths_are_refused():
    metric = uncertainty.BinaryAUROC()
    metric.persistent(True)
    metric.update(torch.rand(4), torch.tensor([0, 1, 0, 1]))
    state = {name: value.clone() for name, value in metric.state_dict().items()}
    name = next(name for name, value in state.items() if value.shape == (4,))
    state[name] = state[name][:3]
    with pytest.raises(RuntimeError, match=f"got .*3 of {name}.*, wanted equally many or none"):
        uncertainty.BinaryAUROC().load_state_dict(state)
