"""Embedding models and queries: where vectors come from, how a word is looked up, and what a query asks.

`formats` reads files of word vectors and language models; `query`, `lookup`, `vocabulary` and `model` turn words into
rows once; `datasets` has the word sets of the literature. Imports no other subpackage of the domain.
"""
