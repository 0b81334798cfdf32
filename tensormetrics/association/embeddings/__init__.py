"""Embedding models and queries: sources of vectors, lookup of words, and word sets to compare.

`formats` reads files of word vectors and language models; `query`, `lookup`, `vocabulary` and `model` convert words to
rows once; `datasets` has word sets from the literature. Imports no other subpackage of the domain.
"""
