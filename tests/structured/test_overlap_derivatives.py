"""Derivatives of overlaps, backward and forward, against differences of their values, and torch.vmap."""

import numpy as np
import pytest
import torch

from tensormetrics.structured import (
    box_iou,
    graph_overlap,
    multiset_overlap,
    normalize,
    reachability,
    sequence_overlap,
    set_overlap,
)

# torch's own forward mode is written with it.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script. is deprecated:DeprecationWarning")
CONSTRAINTS = pytest.mark.parametrize("constraint", ["<->", "->", "<-", "~"])


def graphs(similarity, constraint):
    """Return the reachability of two chains, in which not all pairs agree."""
    chains = [reachability(torch.eye(n).roll(1, 1).triu().bool()) for n in similarity.shape]
    return graph_overlap(similarity, *chains, constraint=constraint).value


OVERLAPS = {
    "set": lambda x, constraint: set_overlap(x, constraint=constraint),
    "sequence": lambda x, constraint: sequence_overlap(x, constraint=constraint),
    "graph": graphs,
}


@CONSTRAINTS
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


@CONSTRAINTS
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
