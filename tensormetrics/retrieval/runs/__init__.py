"""Ranked lists of documents against relevance judgements, as TREC and BEIR have them: reading, ranking, measures."""
