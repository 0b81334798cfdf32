"""Searches of the same form as `TorchKNN`: FAISS, KeOps, and rows that lie on several processes."""
