"""Language models of the transformers library: tokens of words, and probabilities of words and sentences.

`contexts` marks words in sentences and `tokens` finds their tokens, for vectors and for probabilities. Imports no other
subpackage of the domain.
"""
