"""Methods that remove a bias from the vectors of a model, with `fit` and `transform`.

`base` holds what they share. Built on `embeddings`, `sets` and `resampling`.
"""
