"""Association metrics, one file per metric or group of related metrics: a function of tensors, and a class for queries.

`base` has the base class of all metrics, which runs queries on a model; files that begin with an underscore are shared
by several metrics. Built on `embeddings`, `sets` and `resampling`.
"""
