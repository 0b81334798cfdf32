"""Ranked lists of documents and relevance judgements in formats of TREC and BEIR: reading, ranking, measures."""
