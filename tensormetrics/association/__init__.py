"""Association and bias of embeddings between sets of words, sentences or images."""

from .embeddings import get_embeddings_from_query as get_embeddings_from_query
from .embeddings import get_embeddings_from_set as get_embeddings_from_set
from .embeddings import get_embeddings_from_tuples as get_embeddings_from_tuples
from .lookup import PreprocessorArgs as PreprocessorArgs
from .lookup import preprocess_word as preprocess_word
from .model import WordEmbeddingModel as WordEmbeddingModel
from .query import IndexedQuery as IndexedQuery
from .query import Query as Query
