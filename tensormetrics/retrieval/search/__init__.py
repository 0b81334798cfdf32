"""The search for nearest neighbours: filter by matrix products, prove what it leaves out, sort the rest exactly.

`distance` says what each distance is, and in which order neighbours come. `filter` bounds the error of fast products,
so that most pairs can be dropped. `ways` are the ways of searching, each of which proves some neighbours, and `nearest`
goes through them; `least` selects in C++ on a CPU, `halves` and `half_search` in float16 on a GPU, `batch` searches
many small sets together. `references` keeps what is computed from the rows once, `operators` names the native code,
`knn` is the door, and `backend` holds what other searches of the same form share.
"""
