"""Every implementation of the sampling operators draws the same numbers."""

import math

import pytest
import torch
from emulated_operators import lanes

from tensormetrics.core.native import native
from tensormetrics.core.numbers import philox as _philox
from tensormetrics.posterior.sampling import operators, reference

START = 2**32 - 100  # the high word of the sample's number changes
TEAMS = "lane", "warp", "block"


def keys(*shape, device):
    pairs = [_philox.philox_key(3, str(k), "posterior", "x") for k in range(int(torch.tensor(shape).prod()))]
    return torch.tensor(pairs, device=device).view(*shape, 2)


def sums_by(operator, C, prior, dtype, device, forms=2, samples=110, margins=True):
    generator = torch.Generator().manual_seed(C)
    counts = torch.stack(
        [torch.randint(0, 3, (C, C), generator=generator), torch.randint(0, 60, (C, C), generator=generator)]
    )
    cells = (counts.double() + prior).to(device)
    weights = torch.rand(forms, C, C, generator=generator, dtype=torch.float64).to(device) if forms else None
    out = torch.full((2, (4 if margins else 2) * C + forms, samples), torch.nan, dtype=dtype, device=device)
    operator(out, cells.sum(-1), cells, weights, keys(2, 3, device=device), START)
    return out


def kernels(device):
    emulated = [lanes(f"dirichlet_sums_{team}") for team in TEAMS] if device.type == "cpu" else []
    return [operators.dirichlet_sums, *emulated]


@pytest.mark.parametrize(("dtype", "rtol"), [(torch.float64, 1e-11), (torch.float32, 1e-5)])
@pytest.mark.parametrize("prior", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("C", [2, 3, 8])
def test_dirichlet_sums_equal_reference(C, prior, dtype, rtol, device):
    expected = sums_by(reference.dirichlet_sums, C, prior, torch.float64, device)
    for kernel in kernels(device):
        sums = sums_by(kernel, C, prior, dtype, device)
        torch.testing.assert_close(sums.double(), expected, rtol=rtol, atol=1e-37)


@pytest.mark.parametrize("C", [70, pytest.param(260, marks=pytest.mark.full)])  # on CUDA by a warp, and by a block
def test_dirichlet_sums_of_large_tables_equal_reference(C, device):
    expected = sums_by(reference.dirichlet_sums, C, 0.0, torch.float64, device, samples=2)
    for kernel in (candidate for k, candidate in enumerate(kernels(device)) if k != 1):  # a lane has at most 48
        sums = sums_by(kernel, C, 0.0, torch.float64, device, samples=2)
        torch.testing.assert_close(sums, expected, rtol=1e-11, atol=1e-300)


@pytest.mark.parametrize(("dtype", "rtol"), [(torch.float64, 1e-11), (torch.float32, 1e-5)])
@pytest.mark.parametrize("C", [1, 2, 10, 33, 48, 49, 60])  # on CUDA up to 48 by a lane
def test_dirichlet_sums_sample_does_not_depend_on_others(C, dtype, rtol, device):
    kernel = (
        lanes(f"dirichlet_sums_{'lane' if C <= 48 else 'warp'}") if device.type == "cpu" else operators.dirichlet_sums
    )
    expected = sums_by(reference.dirichlet_sums, C, 1.0, torch.float64, device, samples=36)
    full = sums_by(kernel, C, 1.0, dtype, device, samples=36)
    close = torch.isclose(full.double(), expected, rtol=rtol, atol=1e-37)
    assert close.all() if dtype == torch.float64 else close.double().mean() > 0.99  # rounding may let a proposal pass
    assert torch.equal(sums_by(kernel, C, 1.0, dtype, device, forms=0, samples=33), full[:, : 4 * C, :33])
    assert torch.equal(sums_by(kernel, C, 1.0, dtype, device, forms=0, margins=False, samples=9), full[:, : 2 * C, :9])


def test_dirichlet_sums_exceeding_shared_memory_equal_reference(device):
    expected, sums = (
        sums_by(operator, 8, 1.0, torch.float64, device, forms=2000, samples=40)
        for operator in (reference.dirichlet_sums, operators.dirichlet_sums)
    )
    torch.testing.assert_close(sums, expected, rtol=1e-11, atol=0)


@pytest.mark.parametrize(("dtype", "rtol", "S"), [(torch.float64, 1e-12, 2100), (torch.float32, 1e-5, 200)])
def test_log_gamma_operator_equals_reference(dtype, rtol, S, device):
    alpha = torch.tensor([0, 0.1, 0.5, 0.99, 1, 1.5, 3, 80, 1e6, 1e12, 1e31], dtype=torch.float64, device=device)
    alpha = torch.stack([alpha, alpha.flip(0), torch.full_like(alpha, 0.7)]).expand(2, 3, 11).contiguous()
    log_gammas, expected = (torch.empty(2, 3, 11, S, dtype=t, device=device) for t in (dtype, torch.float64))
    operators.log_gamma(log_gammas, alpha, keys(2, device=device), START)
    reference.log_gamma(expected, alpha, keys(2, device=device), START)
    torch.testing.assert_close(log_gammas.double(), expected, rtol=rtol, atol=rtol)


@pytest.mark.parametrize("N", [0, 1, 7, 1500])
def test_item_sums_operator_equals_reference(N, device):
    cells = torch.randint(0, 9, (3, N), generator=torch.Generator().manual_seed(N)).to(device)
    sums, expected = (torch.full((3, 9, 150), torch.nan, dtype=torch.float64, device=device) for _ in range(2))
    for operator, out in (operators.item_sums, sums), (reference.item_sums, expected):
        operator(out, cells, keys(1, device=device)[0], START)
    torch.testing.assert_close(sums, expected, rtol=1e-12, atol=0)
    part = torch.empty(3, 9, 5, dtype=torch.float64, device=device)
    operators.item_sums(part, cells, keys(1, device=device)[0], START + 97)
    assert torch.equal(part, sums[..., 97:102])


@pytest.mark.parametrize("n", [0, 1, 6, 256, 1001])
def test_uniforms_operator_equals_reference(n, device):
    uniforms, expected = (torch.full((n,), torch.nan, dtype=torch.float64, device=device) for _ in range(2))
    for operator, out in (operators.uniforms, uniforms), (reference.uniforms, expected):
        operator(out, keys(1, device=device)[0], 5)
    assert torch.equal(uniforms, expected) and ((uniforms > 0) & (uniforms < 1)).all()


def test_dirichlet_sums_tiny_concentrations_sum_to_one(device):
    cells = torch.full((1, 4, 4), 1e-4, dtype=torch.float64, device=device)
    for kernel in [*kernels(device), reference.dirichlet_sums]:
        for dtype in torch.float32, torch.float64:
            out = torch.empty(1, 16, 70, dtype=dtype, device=device)
            kernel(out, cells.sum(-1), cells, None, keys(1, 3, device=device), 0)
            assert out.isfinite().all()
            torch.testing.assert_close(out.view(4, 4, 70).sum(0), torch.ones(4, 70, dtype=dtype, device=device))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [math.inf, math.nan, 1e39, 3e38])
def test_samplers_invalid_shape_gives_nan_only_in_its_cells(shape, dtype, device):
    """A shape without a distribution gives nan, and does not change its neighbors."""
    alpha = torch.tensor([[[2, shape, 0.5], [shape, shape, 0]]], dtype=torch.float64, device=device)
    cells = torch.tensor([[[5, 1, 2], [1, shape, 0.3], [0, 0, 4]]], dtype=torch.float64, device=device)
    prevalence = torch.ones(1, 3, dtype=torch.float64, device=device)
    is_nan = {True: not math.isfinite(shape), False: dtype == torch.float32 or not math.isfinite(shape)}
    for operator, computes_in_float64 in (operators.log_gamma, False), (reference.log_gamma, True):
        log_gammas, valid = (torch.zeros(1, 2, 3, 130, dtype=dtype, device=device) for _ in range(2))
        operator(log_gammas, alpha, keys(1, device=device), 0)
        operator(valid, torch.where((alpha == 0) | (alpha == 2) | (alpha == 0.5), alpha, 1), keys(1, device=device), 0)
        assert torch.equal(log_gammas[0, 0, ::2], valid[0, 0, ::2]) and (log_gammas[0, 1, 2] == -torch.inf).all()
        invalid = torch.stack([log_gammas[0, 0, 1], *log_gammas[0, 1, :2]])
        assert (invalid.isnan() if is_nan[computes_in_float64] else invalid.isfinite()).all()
    for operator in [*kernels(device), reference.dirichlet_sums]:
        for fields in 6, 12:
            out = torch.zeros(1, fields, 130, dtype=dtype, device=device)
            operator(out, prevalence, cells, None, keys(1, 3, device=device), 0)
            tp, fn = out[0, :3], out[0, 3:6]
            of_class = torch.stack([tp[1], fn[1]])
            assert (of_class.isnan() if is_nan[operator is reference.dirichlet_sums] else of_class.isfinite()).all()
            assert tp[0].isfinite().all() and (fn[2] == 0).all()


def test_dirichlet_sums_threads_do_not_change_bits(device):
    expected = sums_by(operators.dirichlet_sums, 5, 0.3, torch.float32, device, samples=1000)
    threads = torch.get_num_threads()
    try:
        for n in 1, 2, 3:
            torch.set_num_threads(n)
            assert torch.equal(sums_by(operators.dirichlet_sums, 5, 0.3, torch.float32, device, samples=1000), expected)
    finally:
        torch.set_num_threads(threads)


def test_reference_sums_scratch_size_changes_rounding_only(device, monkeypatch):
    """Vectors and their ends may round apart, by eps in logarithms of up to 100: by 100 eps on each side in sums."""
    expected = sums_by(reference.dirichlet_sums, 4, 0.3, torch.float64, device)
    monkeypatch.setitem(reference.SCRATCH_CELLS, device.type, 1000)
    sums = sums_by(reference.dirichlet_sums, 4, 0.3, torch.float64, device)
    torch.testing.assert_close(sums, expected, rtol=200 * torch.finfo(torch.float64).eps, atol=0)


def test_sampling_operators_invalid_outputs_raise(device):
    cells = torch.rand(2, 3, 3, dtype=torch.float64, device=device)
    with pytest.raises(RuntimeError, match="uniforms: got out of float32"):
        operators.uniforms(torch.zeros(9, device=device), keys(1, device=device)[0], 2)
    with pytest.raises(RuntimeError, match="item_sums: got out of float32"):
        items = torch.tensor([[0, 3], [2, 2]], device=device)
        operators.item_sums(torch.zeros(2, 4, 5, device=device), items, keys(1, device=device)[0], 0)
    with pytest.raises(RuntimeError, match="got out of 11 fields, wanted 12"):
        out = torch.zeros(2, 11, 5, device=device)
        operators.dirichlet_sums(out, cells.sum(-1), cells, None, keys(2, 3, device=device), 0)


def test_log_gamma_without_native_code_warns_once(recwarn):
    native.warn_missing.cache_clear()
    arguments = torch.ones(1, 1, 3, dtype=torch.float64), keys(1, device="cpu"), 0
    fallback, compiled = (torch.empty(1, 1, 3, 5, dtype=torch.float64) for _ in range(2))
    reference = torch._C.DispatchKeySet(torch._C.DispatchKey.CompositeExplicitAutograd)
    with pytest.warns(RuntimeWarning, match="^sample_dirichlet: there is no native code for cpu"):
        torch.ops.tensormetrics.log_gamma.default.redispatch(reference, fallback, *arguments)
    torch.ops.tensormetrics.log_gamma.default.redispatch(reference, fallback, *arguments)
    operators.log_gamma(compiled, *arguments)
    assert not recwarn.list
    torch.testing.assert_close(fallback, compiled, rtol=1e-12, atol=1e-12)
