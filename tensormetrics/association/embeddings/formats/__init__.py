"""Readers of word vectors: word2vec and GloVe texts, fastText, arrays, and language models of transformers.

Imported by `embeddings` only; `arrays` is built on `embeddings/vocabulary.py`.
"""
