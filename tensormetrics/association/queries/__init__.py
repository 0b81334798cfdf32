"""Many queries on many models: tables of scores, corrections for many tests, rankings and plots.

Built on `embeddings`, `sets`, `resampling` and `metrics`.
"""
