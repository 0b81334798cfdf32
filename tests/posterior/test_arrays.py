import warnings

import numpy as np
import pytest
import torch

from tensormetrics.posterior import PosteriorWarning
from tensormetrics.posterior.sampling import arrays
from tensormetrics.posterior.sampling.arrays import ArrayTensor, as_array

X = torch.rand(5, 4, generator=torch.Generator().manual_seed(1)) + 0.1
Y = torch.rand(5, 4, generator=torch.Generator().manual_seed(2)) + 0.1

EXPRESSIONS = {
    "ufunc": lambda x, y: np.sqrt(x * y),
    "operators": lambda x, y: 1 - x / (x + y) ** 2,
    "numbers first": lambda x, y: np.float64(2) * x + np.maximum(0.5, y),
    "logarithms": lambda x, y: np.log(x) + np.log1p(y) - np.exp(-x),
    "renamed ufuncs": lambda x, y: np.power(x, 2) + np.rint(y) + np.fabs(-x) + np.absolute(y),
    "where": lambda x, y: np.where(x > y, x, 0.0),
    "clip": lambda x, y: np.clip(x, 0.2, 0.6) + np.clip(y, a_min=0.3, a_max=None),
    "safe division": lambda x, y: np.divide(x, y, out=np.zeros_like(x), where=y > 0.5),
    "mean": lambda x, y: np.mean(x, axis=1, keepdims=True) + np.mean(y),
    "sum": lambda x, y: np.sum(x * y, axis=-1),
    "extremes": lambda x, y: np.max(x, axis=1) - np.min(y, axis=1) + np.amax(x) - np.amin(y),
    "spread": lambda x, y: np.std(x, axis=1) + np.var(y, axis=1, ddof=1),
    "median": lambda x, y: np.median(x, axis=1) + np.quantile(y, 0.25, axis=1),
    "sort": lambda x, y: np.sort(x, axis=1) + np.sort(y),
    "join": lambda x, y: np.concatenate([x, y], axis=1),
    "stack": lambda x, y: np.stack([x, y], axis=-1),
    "nan": lambda x, y: np.nan_to_num(np.where(x > 0.5, np.nan, x)) + np.isnan(y),
    "array operand": lambda x, y: np.arange(4.0) * x + y * np.arange(4.0),
    "array out": lambda x, y: np.divide(x, y, out=np.ones((5, 4)), where=y > 0.5),
    "logic": lambda x, y: np.logical_and(x > 0.3, ~(y > 0.4)),
    "cumulative": lambda x, y: np.cumsum(x, axis=1) * np.prod(y, axis=1)[:, None],
}


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_arrays_numpy_expressions_stay_on_device(name, device):
    expected = EXPRESSIONS[name](X.double().numpy(), Y.double().numpy())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = EXPRESSIONS[name](as_array(X.double().to(device)), as_array(Y.double().to(device)))
    assert isinstance(result, ArrayTensor) and result.device.type == device.type
    np.testing.assert_allclose(np.asarray(result), expected, 1e-12)


def test_as_array_keeps_dtype_and_memory(device):
    x = X.to(device)
    assert as_array(x).data_ptr() == x.data_ptr()
    assert np.sqrt(2 * as_array(x) + np.float64(1)).dtype == torch.float32


def test_arrays_unsupported_function_warns_once(device, monkeypatch):
    monkeypatch.setattr(arrays, "_computed_on_the_host", set())
    x = as_array(X.to(device))
    with pytest.warns(PosteriorWarning) as caught:
        result = np.percentile(x, 30, axis=1)
    message = (
        "numpy.percentile has no torch twin for these arguments and computes on the host; "
        "a torch function would stay on the device"
    )
    assert [str(w.message) for w in caught] == [message]
    np.testing.assert_allclose(np.asarray(np.percentile(x, 30, axis=1)), np.percentile(X.numpy(), 30, axis=1), 1e-6)
    assert isinstance(result, ArrayTensor) and result.device == x.device
    with pytest.warns(PosteriorWarning, match="numpy.cbrt"):
        np.testing.assert_allclose(np.asarray(np.cbrt(x)), np.cbrt(X.numpy()), 1e-6)
    with pytest.warns(PosteriorWarning, match="numpy.add"):
        np.testing.assert_allclose(np.asarray(np.add.reduce(x, axis=1)), X.sum(1).numpy(), 1e-6)
    with pytest.warns(PosteriorWarning, match="numpy.split"):
        assert [tuple(part.shape) for part in np.split(x, 4, axis=1)] == [(5, 1)] * 4
