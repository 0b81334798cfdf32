"""Overlaps against enumeration and plain torch, their inequalities and derivatives."""

import itertools
import math

import numpy as np
import pytest
import torch
from object_oracle import heaviest_chain, heaviest_relation
from raising import raises

from tensormetrics.structured import BoxMatch, SpanScores, derive, read_tags
from tensormetrics.structured.extend import Constraint, FScore, Normalizer, Policy
from tensormetrics.structured.functional import (
    box_iou,
    graph_overlap,
    multiset_overlap,
    normalize,
    reachability,
    sequence_overlap,
    set_overlap,
)
from tensormetrics.structured.tensors.sequence import antidiagonals

CONSTRAINTS = ("<->", "->", "<-", "~")


@pytest.mark.parametrize("constraint", CONSTRAINTS)
def test_overlaps_equal_enumeration(constraint, generator):
    for n, m in ((1, 3), (2, 2), (3, 3), (3, 2)):
        similarity = torch.randn(n, m, generator=generator, dtype=torch.float64)
        for overlap, best in ((set_overlap, heaviest_relation), (sequence_overlap, heaviest_chain)):
            assert float(overlap(similarity, constraint=constraint)) == pytest.approx(
                best(similarity.numpy(), constraint)
            )


@pytest.mark.parametrize("constraint", CONSTRAINTS)
def test_counts_equal_the_pairwise_overlap(constraint, generator, device):
    pred, ref = (torch.randint(0, 3, (200, n, 2), generator=generator).to(device) for n in (4, 5))
    counts = multiset_overlap(pred, ref, constraint=constraint, columns=True)
    for value, (x, y) in zip(counts, ((pred, ref), (pred, pred), (ref, ref)), strict=True):
        equal = (x[:, :, None] == y[:, None]).all(-1).double()
        assert torch.equal(value.double(), set_overlap(equal, constraint=constraint))


@pytest.mark.parametrize("constraint", CONSTRAINTS)
def test_multiset_overlap_set_cross_equals_the_metric_of_objects(constraint):
    pred, ref = [1, 1, 2], [1, 2, 2, 2]
    counts = multiset_overlap(torch.tensor(pred), torch.tensor(ref), constraint=constraint, duplicates="set_cross")
    objects = derive(list[int], constraint=constraint, policy=Policy(duplicates="set_cross")).overlap([pred], [ref])
    assert [int(value) for value in counts] == [int(value) for value in objects[:3]]


def test_rows_never_collide(generator):
    """Rows that agree in the sum, the xor and the low bits of their columns, or differ in one bit of one column."""
    a, b = 2**40 + 1, 2**40 + 2
    rows = sorted({*itertools.permutations((a, a, b, b, 0))})
    samples = torch.randint(-(2**40), 2**40, (20, 5), generator=generator)
    flipped = [samples ^ (torch.arange(5) == column) * 2**bit for column in range(5) for bit in (0, 31, 32, 39)]
    rows = torch.tensor(sorted({*rows, *map(tuple, torch.cat([samples, *flipped]).tolist())}))
    for i in range(0, len(rows), 7):
        result = multiset_overlap(rows[i : i + 1], rows, columns=True, constraint="~")
        assert (result.cross, result.ref) == (1, len(rows))


@pytest.mark.parametrize("constraint", CONSTRAINTS)
@pytest.mark.parametrize("overlap", [set_overlap, sequence_overlap])
def test_gradient_of_padded_documents(overlap, constraint, generator):
    """As without the padding, which may be NaN and gets none."""
    lengths = torch.tensor([3, 2, 0]), torch.tensor([4, 3, 2])
    full = torch.randn(3, 3, 4, generator=generator, dtype=torch.float64)
    rows, columns = torch.arange(3) < lengths[0][:, None], torch.arange(4) < lengths[1][:, None]
    padded = full.where(rows[:, :, None] & columns[:, None], torch.nan).requires_grad_()
    (inputs,) = torch.autograd.grad(overlap(padded, *lengths, constraint).sum(), padded)
    for document, (n, m) in enumerate(zip(*lengths, strict=True)):
        single = full[document, :n, :m].clone().requires_grad_()
        (expected,) = torch.autograd.grad(overlap(single, constraint=constraint), single)
        assert torch.equal(inputs[document, :n, :m], expected)
        assert inputs[document].abs().sum() == expected.abs().sum()


@pytest.mark.parametrize("constraint", CONSTRAINTS)
def test_extra_dimensions_strides_and_no_documents(constraint, generator):
    similarity = torch.rand(2, 3, 4, 5, generator=generator).transpose(0, 1)
    for overlap in (set_overlap, sequence_overlap):
        value = overlap(similarity, constraint=constraint)
        assert torch.equal(value, overlap(similarity.flatten(0, 1), constraint=constraint).view(3, 2))
        for empty, shape in (((0, 4, 5), (0,)), ((2, 0, 5), (2,)), ((2, 4, 0), (2,)), ((2, 0, 0), (2,))):
            result = overlap(torch.zeros(empty), constraint=constraint)
            assert result.shape == shape and result.dtype == torch.float64 and not result.any()


@pytest.mark.parametrize("constraint", CONSTRAINTS)
@pytest.mark.parametrize("overlap", [set_overlap, sequence_overlap])
def test_overlap_nan_affects_only_its_document_and_minus_infinity_forbids(overlap, constraint):
    similarity = torch.ones(3, 2, 2)
    similarity[0, 1, 1] = torch.nan
    similarity[1, 0, 0] = torch.inf
    similarity[2] = -torch.inf
    assert overlap(similarity, constraint=constraint).isnan().tolist() == [True, True, False]
    assert overlap(similarity, constraint=constraint)[2] == 0


def test_half_precision_is_summed_from_single(device):
    similarity = torch.full((300, 300), 0.1, dtype=torch.bfloat16, device=device)
    assert float(set_overlap(similarity)) == pytest.approx(300 * float(similarity[0, 0].float()), rel=1e-6)


def test_normalizer_names_are_parsed():
    assert Normalizer.parse("f1e1") == FScore(10.0) and Normalizer.parse("f2").name == "f2"
    assert Normalizer.parse("dice") == Normalizer.parse("f") == Normalizer.parse("f1") == FScore()
    for text in ("f0", "f-1", "F1", "fscore", "", "f1e999"):
        with raises(
            ValueError,
            f"normalizer: got {text!r}, wanted one of 'none', 'precision', 'p', 'recall', 'r', 'jaccard', 'j', 'dice', "
            f"'f', or 'f' and a positive number such as 'f0.5'",
        ):
            Normalizer.parse(text)
    with pytest.raises(ValueError, match=r"'f0.5'; those of rankings are in tensormetrics.compat.metametric$"):
        Normalizer.parse("precision@k")
    zero, one = torch.zeros(2), torch.tensor([0.0, 1.0])
    assert normalize(zero, zero, one, "p", "agree").tolist() == [1, 0]
    assert normalize(zero, zero, one, "p", 0.5).tolist() == [0.5, 0.5]
    assert normalize(zero, zero, zero, "f1", math.nan).isnan().all()
    for name in ("none", "p", "r", "j"):
        assert normalize(zero, zero, zero, name, "metametric").isnan().all() == (name != "none")
    assert normalize(zero, zero, zero, "f2", "metametric").tolist() == [0, 0]


def test_counts_are_divided_in_float64():
    overlap = multiset_overlap(torch.tensor([1, 2, 3, 4, 5]), torch.tensor([1, 2, 6]))
    for name, value in {"none": 2, "precision": 2 / 5, "recall": 2 / 3, "jaccard": 2 / 6, "f2": 10 / 17}.items():
        result = normalize(*overlap, name)
        assert result.dtype == torch.float64 and result.item() == pytest.approx(value, rel=1e-15)
    assert normalize(*(x.float() for x in overlap)).dtype == torch.float32


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("index", range(3))
def test_normalize_nonfinite_overlaps_give_nonfinite_ratios(index, value):
    """A non-finite value in an overlap that the ratio reads, for any other overlaps and any `zero_division`."""
    reads = {"none": {0}, "p": {0, 1}, "r": {0, 2}, "j": {0, 1, 2}, "f1": {0, 1, 2}}
    for others in (0.0, 2.0):
        overlaps = torch.full((3,), others)
        overlaps[index] = value
        for name, read in reads.items():
            for zero_division in (0.5, "agree", "metametric"):
                result = normalize(*overlaps, name, zero_division)
                assert not result.isfinite() or index not in read, (name, others)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int64, torch.float16, torch.bfloat16])
def test_boxes_of_any_dtype_are_compared_in_float32(dtype):
    # uint8 would wrap below 0, int8 in the area of a box, and 300 x 300 is more than float16 holds.
    wide = 120 if dtype == torch.int8 else 240
    boxes = torch.tensor([[0, 0, wide, wide], [10, 10, 20, 20], [30, 30, 40, 45], [0, 0, wide // 2, wide]]).to(dtype)
    rows = boxes.tolist()
    expected = torch.zeros(4, 4)
    for i, (ax, ay, bx, by) in enumerate(rows):
        for j, (cx, cy, dx, dy) in enumerate(rows):
            shared = max(0, min(bx, dx) - max(ax, cx)) * max(0, min(by, dy) - max(ay, cy))
            expected[i, j] = shared / ((bx - ax) * (by - ay) + (dx - cx) * (dy - cy) - shared)
    torch.testing.assert_close(box_iou(boxes, boxes), expected)


def test_box_match_repeated_threshold_counts_once():
    boxes = torch.tensor([[[0.0, 0, 2, 2]]])
    once, twice = BoxMatch([0.5]), BoxMatch([0.5, 0.5])
    for metric in (once, twice):
        metric.update(boxes, boxes)
    assert twice.compute() == once.compute()


def test_labels_in_an_array_are_accepted():
    labels = np.array(["LOC", "PER"])
    tags = read_tags([["B-PER", "O", "B-LOC"]], labels=labels)
    assert tags.spans[0, :, 0].tolist() == [1, 0]
    metric = SpanScores(labels=labels)
    metric.update(tags.spans, tags.spans, tags.lengths, tags.lengths)
    assert metric.compute()["f1[PER]"] == 1


@pytest.mark.parametrize("constraint", Constraint)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "shape", [(1, 1, 1), (15, 7, 5), (16, 5, 7), (17, 1, 9), (33, 9, 1), (0, 2, 3), (700, 16, 17)], ids=str
)
def test_equals_the_torch_code(shape, dtype, constraint, generator):
    similarity = torch.randn(shape, generator=generator, dtype=dtype)
    similarity[1::3] = torch.inf  # spoils no neighbor
    similarity[2::3, 0, 0] = -torch.inf
    value = sequence_overlap(similarity, constraint=constraint)
    assert value.dtype == torch.float64 and value[1::3].isnan().all()
    assert torch.equal(value.nan_to_num(torch.inf), antidiagonals(similarity, *constraint.once))


def test_heaviest_chain_passes_opcheck():
    arguments = torch.rand(3, 4, 5), True, False
    torch.library.opcheck(torch.ops.tensormetrics.heaviest_chain.default, arguments)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int64, torch.bool])
def test_heaviest_chain_other_dtypes_raise(dtype):
    with pytest.raises(RuntimeError, match="wanted similarity: real B N M"):
        torch.ops.tensormetrics.heaviest_chain(torch.ones(1, 8, 8, dtype=dtype), True, True)


# torch's own forward mode is written with it.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script. is deprecated:DeprecationWarning")
FOR_CONSTRAINTS = pytest.mark.parametrize("constraint", ["<->", "->", "<-", "~"])


def graphs(similarity, constraint):
    """Return the reachability of two chains, in which not all pairs agree."""
    chains = [reachability(torch.eye(n).roll(1, 1).triu().bool()) for n in similarity.shape]
    return graph_overlap(similarity, *chains, constraint=constraint).value


OVERLAPS = {
    "set": lambda x, constraint: set_overlap(x, constraint=constraint),
    "sequence": lambda x, constraint: sequence_overlap(x, constraint=constraint),
    "graph": graphs,
}


@FOR_CONSTRAINTS
@pytest.mark.parametrize("name", OVERLAPS)
def test_derivatives_equal_differences(name, constraint, generator):
    overlap = OVERLAPS[name]
    x, direction = (torch.rand(4, 5, generator=generator, dtype=torch.float64) - 0.3 for _ in range(2))
    step = 1e-6
    expected = (
        (overlap(x + step * direction, constraint) - overlap(x - step * direction, constraint)) / 2 / step
    ).item()
    assert abs(expected) > 1e-3
    value, tangent = torch.func.jvp(lambda x: overlap(x, constraint), (x,), (direction,))
    assert torch.equal(value, overlap(x, constraint))
    np.testing.assert_allclose(tangent.item(), expected, rtol=1e-6)
    for jacobian in (torch.func.jacfwd, torch.func.jacrev):
        result = jacobian(lambda x: overlap(x, constraint))(x)
        np.testing.assert_allclose((result * direction).sum().item(), expected, rtol=1e-6)
    (gradient,) = torch.autograd.grad(overlap(x.requires_grad_(), constraint), x)
    np.testing.assert_allclose((gradient * direction).sum().item(), expected, rtol=1e-6)


def test_graph_overlap_proved_by_integer_program_has_gradient(generator):
    """The pairs come from the integer program, not from the search."""
    num_proved = 0
    for _ in range(30):
        x = torch.rand(6, 6, generator=generator, dtype=torch.float64)
        reachable = [reachability(torch.rand(6, 6, generator=generator) < 0.15) for _ in range(2)]
        value = graph_overlap(x, *reachable).value
        num_proved += bool(value > graph_overlap(x, *reachable, solver="search").value)
        gradient = torch.func.jacrev(lambda x, reachable=reachable: graph_overlap(x, *reachable).value)(x)
        torch.testing.assert_close((gradient * x).sum(), value)
        assert gradient.eq(0).logical_or(gradient.eq(1)).all()
    assert num_proved


def test_overlap_derivatives_of_piecewise_smooth_functions_match(generator):
    """`normalize` and `box_iou` away from their edges."""
    values = torch.rand(3, 5, generator=generator, dtype=torch.float64) + 1
    boxes = torch.rand(2, 3, 2, generator=generator, dtype=torch.float64)
    boxes = torch.cat([boxes, boxes + 1], -1)
    for name in ("none", "precision", "recall", "jaccard", "f2"):
        torch.autograd.gradcheck(
            lambda *x, name=name: normalize(*x, name),
            tuple(values.clone().requires_grad_().unbind()),
            check_forward_ad=True,
        )
    torch.autograd.gradcheck(box_iou, tuple(boxes.requires_grad_().unbind()), check_forward_ad=True)


@FOR_CONSTRAINTS
def test_vmap_is_the_batch(constraint, generator):
    similarity = torch.rand(3, 2, 5, 6, generator=generator)
    lengths = [torch.randint(0, n + 1, (3, 2), generator=generator) for n in (5, 6)]
    keys = [torch.randint(0, 3, (3, 2, n), generator=generator) for n in (5, 6)]
    before = torch._C._functorch._is_vmap_fallback_enabled()
    torch._C._functorch._set_vmap_fallback_enabled(False)  # an operator without a rule is an error then
    try:
        for overlap, arguments in (
            (set_overlap, (similarity, *lengths)),
            (sequence_overlap, (similarity, *lengths)),
            (multiset_overlap, (*keys, *lengths)),
        ):
            expected = overlap(*arguments, constraint)
            mapped = torch.vmap(torch.vmap(lambda *a, overlap=overlap: overlap(*a, constraint)))(*arguments)
            for result, reference in zip(mapped, expected, strict=True):
                assert torch.equal(result, reference)
    finally:
        torch._C._functorch._set_vmap_fallback_enabled(before)
