"""Many queries on many models: tables of scores, corrections for many tests, and a figure.

Built on `embeddings`, `sets`, `resampling` and `metrics`.
"""
