"""Exact nearest neighbor search: matrix products exclude most pairs, canonical distances order the remaining ones.

`distance` defines the distances and the order of neighbors. `product_filter` bounds the error of fast products, so
that most pairs can be excluded. `stages` are the steps of a search, each of which proves the neighbors of some
queries, and `nearest` runs them in turn; `topk` selects in C++ on a CPU, `fp16_filter` and `fp16_search` in float16 on
a GPU, where `direct_search` searches few references, `int16` in int16 on a CPU, and `batch` searches many small sets at
once. `references` caches values computed from the rows, `operators` declares the native code, `knn` is the public
class, and `backend` holds helpers of other backends.
"""
