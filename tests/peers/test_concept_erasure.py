"""Agreement with concept-erasure 0.2.4."""

import pytest
import torch

from tensormetrics.association import LEACE

LeaceFitter = pytest.importorskip("concept_erasure").LeaceFitter


@pytest.mark.parametrize(("rows", "dims", "classes"), [(500, 20, 2), (700, 33, 5), (30, 64, 3)])
def test_leace_equals_concept_erasure_eraser(rows, dims, classes, generator):
    labels = torch.randperm(rows, generator=generator) % classes
    mix, means = (torch.randn(n, dims, generator=generator, dtype=torch.float64) for n in (dims, classes))
    vectors = torch.randn(rows, dims, generator=generator, dtype=torch.float64) @ mix + means[labels] + 3
    one_hot = torch.nn.functional.one_hot(labels).double()
    options = {"shrinkage": False, "constrain_cov_trace": False, "svd_tol": 1e-6}
    theirs = LeaceFitter.fit(vectors, one_hot, **options).eraser
    ours = LEACE().fit_tensors(vectors, labels)
    new = torch.randn(50, dims, generator=generator, dtype=torch.float64)
    for x in (vectors, new):
        torch.testing.assert_close(ours(x), theirs(x), rtol=1e-8, atol=1e-8)
