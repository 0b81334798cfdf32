"""Check that FAISS searches on this GPU, with the same results as torch."""

import faiss
import torch

queries, references = torch.randn(500, 64), torch.randn(5000, 64)
index = faiss.GpuIndexFlatL2(faiss.StandardGpuResources(), 64)
index.add(references.numpy())
distances, indices = index.search(queries.numpy(), 10)
expected = torch.cdist(queries.double(), references.double()).square()
nearest = expected.topk(10, largest=False)
agreement = (torch.from_numpy(indices) == nearest.indices).double().mean().item()
assert agreement > 0.999, f"{agreement:.4%} of the neighbors agree"
torch.testing.assert_close(torch.from_numpy(distances).double(), nearest.values, rtol=1e-4, atol=1e-4)
print(f"faiss {faiss.__version__}: {agreement:.4%} of the neighbors agree with torch")
