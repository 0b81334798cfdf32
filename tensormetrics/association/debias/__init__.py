"""Debiasing methods for the vectors of a model, with `fit` and `transform`.

`base` has their common base class. Built on `embeddings`, `sets` and `resampling`.
"""
