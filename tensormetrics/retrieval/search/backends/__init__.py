"""Searches with the interface of `TorchKNN`: FAISS, KeOps, stored neighbors, and rows on several processes."""
