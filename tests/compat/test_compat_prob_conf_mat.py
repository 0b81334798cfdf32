"""Programs written for prob_conf_mat, above all its guide "Extend the Library", with imports from `compat`."""

import doctest
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from documents import code_blocks, with_our_imports
from raising import raises

from tensormetrics.compat import prob_conf_mat as pcm
from tensormetrics.posterior import ConfusionPosterior, Study
from tensormetrics.posterior.extend import temporary_registrations

BLOCKS = code_blocks("prob_conf_mat_extend.md")
CANNOT_RUN = {  # block -> its error with that package, too, and why
    **dict.fromkeys((1, 6, 14), (SyntaxError, "the first line of a class alone")),
    9: (ValueError, "acc has one value for all classes, so that there is nothing to average"),
    10: (ValueError, "the metric is called fm, not fmi"),
    12: (ValueError, "the class before leaves out its formula"),
    18: (SyntaxError, "a line ends in two colons"),
    19: (ValueError, "needs the class before"),
}
COUNTS = {"a": [[13, 2, 1], [3, 20, 4], [1, 5, 9]], "b": [[4, 1, 1], [1, 7, 1], [1, 1, 9]]}


class Subscripted:
    def __class_getitem__(cls, item):
        return cls


class jtyping:  # noqa: N801  # annotations of the guide, by the name that it gives to jaxtyping
    Float = Subscripted


@pytest.fixture
def study(device):
    with temporary_registrations():
        study = pcm.Study(seed=0, num_samples=10_000, device=device)
        for name, matrix in COUNTS.items():
            study.add_experiment(f"g/{name}", matrix)
        yield study


@pytest.fixture
def run(study):
    names = {"np": np, "jtyping": jtyping, "study": study}
    return lambda source: exec(with_our_imports(source, "prob_conf_mat"), names)


def samples(study, metric, experiment="g/b"):
    study.add_metric(metric)
    return study.get_metric_samples(metric, experiment).values


def test_blocks_of_guide_run_and_give_its_values(study, run):
    for number, block in enumerate(BLOCKS):
        with pytest.raises(CANNOT_RUN[number][0]) if number in CANNOT_RUN else nullcontext():
            run(block)
    assert (len(BLOCKS), len(CANNOT_RUN)) == (20, 8)
    accuracy = study.get_metric_samples("acc", "g/b").values
    assert torch.equal(study.get_metric_samples("acc", "g/aggregated").values, accuracy)  # column 1 of its code
    fowlkes_mallows, ppv, tpr = (samples(study, metric) for metric in ("fm", "ppv", "tpr"))
    torch.testing.assert_close(fowlkes_mallows, (ppv * tpr).sqrt())
    for metric, values in ("fm@two", fowlkes_mallows), ("tpr@2nd_class", tpr):
        assert torch.equal(samples(study, metric), values[:, 1:2])
    assert pcm.get_metric("fm") is pcm.get_metric("fowlkes_mallows")


def test_parameters_of_guide_are_options(study, run):
    run(BLOCKS[0])
    attributes = BLOCKS[3].partition('Index"\n')[2].partition("    aliases")[0].replace('"ppv", "tpr"', '"tpr",')
    formula = "\n    def compute_metric(self, tpr):\n        return tpr**self.bar if self.foo else tpr"
    run(BLOCKS[11].replace("    ...\n", attributes) + formula)
    run(BLOCKS[12])
    squares = study.get_metric_samples("foobar+foo=True+bar=2", "g/a").values
    torch.testing.assert_close(squares, samples(study, "tpr", "g/a") ** 2)
    run(BLOCKS[18].replace("::", ":").replace("    ...\n", BLOCKS[16].partition("Aggregator):\n")[2] + "\n"))
    run(BLOCKS[19])
    aggregator = study.get_metric_samples("acc", "g/aggregated").aggregator
    assert (aggregator.foo, aggregator.bar, type(aggregator.rng)) == (False, 2, pcm.RNG)


def test_streams_of_aggregator_have_methods_of_numpy(study):
    class Resampled(pcm.ExperimentAggregator):
        full_name, aliases = "Resampled", ["resampled"]

        def aggregate(self, experiment_samples, bounds):
            rows = self.rng.integers(0, experiment_samples.shape[1], len(experiment_samples))
            noise = self.rng.normal(0.0, 1e-3, len(rows)) * self.rng.uniform(0.0, 1.0, (len(rows),))
            chosen = np.asarray(experiment_samples.cpu())[np.arange(len(rows)), rows]
            return np.clip(chosen + np.asarray(noise), *bounds)

    study.add_metric("acc", aggregation="resampled")
    pooled, first, second = (
        study.get_metric_samples("acc", f"g/{name}").values[:, 0] for name in ("aggregated", "a", "b")
    )
    distances, is_first = torch.stack([pooled - first, pooled - second]).abs().min(0)
    assert 0 < distances.median() < 1e-3 and 0.45 < is_first.double().mean() < 0.55


def test_stream_depends_on_seed_and_position():
    first, other = (pcm.RNG(seed=3, position=(0,)).beta(2, 3, 5) for _ in range(2))
    assert (first == other).all() and isinstance(first, np.ndarray)
    parent = pcm.RNG(3)
    (child, sibling), (grandchild,) = parent.spawn(n_children=2), parent.spawn(1)[0].spawn(1)
    assert len({float(rng.random()) for rng in (parent, child, sibling, grandchild, pcm.RNG(4), pcm.RNG(None))}) == 6
    rows = pcm.dirichlet_sample(rng=parent, alphas=np.array([[2.0, 1.0], [1.0, 4.0]]), num_samples=4000)
    torch.testing.assert_close(rows.mean(0), torch.tensor([[2 / 3, 1 / 3], [0.2, 0.8]]).double(), atol=0.02, rtol=0)
    assert not torch.equal(rows, pcm.dirichlet_sample(parent, torch.tensor([[2.0, 1.0], [1.0, 4.0]]), 4000))


def test_collection_is_ordered_by_insertion_and_by_dependencies():
    collection = pcm.MetricCollection(metrics=None)
    collection.add(metric=["f1@macro", "acc", pcm.get_metric("f1"), pcm.MetricCollection("tpr")])
    assert [metric.name for metric in collection.get_insert_order()] == ["f1@macro", "acc", "f1", "true_positive_rate"]
    order = list(collection.get_compute_order())
    assert set(collection) < set(order) and order.index(pcm.get_metric("f1")) < order.index(pcm.get_metric("f1@macro"))


def test_study_from_dictionary_compares_all_experiments(study):
    study.add_metric("acc")
    config = study.to_dict()
    assert [config.pop(name) for name in ("num_samples", "ci_probability")] == [10_000, 0.95]
    study = pcm.Study.from_dict(config_dict=config, num_samples=500, ci_probability=0.9)
    study.num_samples, values = 400, study.get_metric_samples("acc", "g/a").values
    assert (study.num_samples, study.ci_probability, len(values)) == (400, 0.9, 500)
    assert study.get_listwise_comparsion_result("acc").experiment_names == ["g/b", "g/a"]
    random = pcm.SamplingMethod.RANDOM
    values = [study.get_metric_samples("acc", "g/a", sampling_method=method).values for method in (random, "random")]
    assert f"{random}" == "random" and torch.equal(*values)


def test_functions_take_arrays_by_their_names():
    means = np.random.default_rng(0).normal([0.8, 0.7], 0.05, (4000, 2))
    summary = pcm.summarize_posterior(posterior_samples=means[:, 0], ci_probability=0.9)
    assert summary.ci_probability == 0.9 and list(summary.as_dict())[2] == "90.0% HDI"
    assert summary.hdi == pcm.hdi_estimator(samples=means[:, 0], prob=0.9)
    assert summary.mode == pcm.histogram_mode_estimator(samples=means[:, 0])
    density = pcm.compute_kde(samples=means[:, 0], cut=0, clip=(0.0, 1.0), grid_samples=50)
    assert density.bounds == (means[:, 0].min(), means[:, 0].max()) and len(density.y_vals) == 50
    accuracy = pcm.get_metric("acc")
    difference = {"metric": accuracy, "diff_dist": means[:, 0] - means[:, 1], "ci_probability": 0.9}
    result = pcm.pairwise_compare(**difference, lhs_name="x", rhs_name="y", random_diff_dist=means[:, 0] - 0.8)
    assert result.template_sentence().startswith("acc of x minus that of y: median 0.")
    assert result.p_direction == (means[:, 0] > means[:, 1]).mean()
    ranks = pcm.listwise_compare(experiment_scores_dict=dict(zip("xy", means.T, strict=True)), metric=accuracy)
    assert ranks.p_experiment_given_rank[0, 0] == result.p_direction
    i2 = pcm.estimate_i2(individual_samples=means)
    assert i2.i2_interpretation == pcm.interpret_i2(i2_score=float(i2.i2))


def test_argument_of_the_package_elsewhere_names_this_module():
    message = r"^(Study|ConfusionPosterior): got the argument 'num_samples', wanted .*compat.prob_conf_mat takes it$"
    for kind in ConfusionPosterior, Study:
        with pytest.raises(TypeError, match=message):
            kind(2, num_samples=100)


@pytest.mark.parametrize("pred_first", [True, False])
def test_pred_cond_pairs_give_back_matrix(pred_first, device):
    matrix = torch.tensor([[3, 1, 0], [2, 4, 1], [0, 1, 4]], device=device)
    pairs = pcm.confusion_matrix_to_pred_cond(matrix, pred_first=pred_first)
    assert pairs.shape == (16, 2) and pairs[:, 1 if pred_first else 0].bincount().tolist() == [4, 7, 5]
    assert torch.equal(pcm.pred_cond_to_confusion_matrix(pred_cond=pairs, pred_first=pred_first), matrix.cpu())
    assert torch.equal(pcm.pred_cond_to_confusion_matrix(pairs, pred_first=not pred_first), matrix.cpu().T)
    assert pcm.pred_cond_to_confusion_matrix(pairs[:0], num_classes=3).tolist() == [[0] * 3] * 3


def test_pred_cond_pairs_of_fractions_raise():
    with raises(ValueError, "confusion_matrix: got fractional counts, which are no pairs; round them first"):
        pcm.confusion_matrix_to_pred_cond([[0.5, 1], [1, 1]])


def test_examples_of_docstrings_run():
    assert doctest.testmod(pcm, extraglobs=vars(pcm)) == (0, 2)
