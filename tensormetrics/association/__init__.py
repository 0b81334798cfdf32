"""Association and bias of embeddings between sets of words, sentences or images."""

from .base_metric import BaseMetric as BaseMetric
from .ect import ECT as ECT
from .ect import ect as ect
from .embeddings import get_embeddings_from_query as get_embeddings_from_query
from .embeddings import get_embeddings_from_set as get_embeddings_from_set
from .embeddings import get_embeddings_from_tuples as get_embeddings_from_tuples
from .example_metric import ExampleMetric as ExampleMetric
from .example_metric import example_metric as example_metric
from .lookup import PreprocessorArgs as PreprocessorArgs
from .lookup import preprocess_word as preprocess_word
from .mac import MAC as MAC
from .mac import mac as mac
from .model import WordEmbeddingModel as WordEmbeddingModel
from .permutation import permutation_p_value as permutation_p_value
from .permutation import sign_flip_p_value as sign_flip_p_value
from .query import IndexedQuery as IndexedQuery
from .query import Query as Query
from .ripa import RIPA as RIPA
from .ripa import ripa as ripa
from .rnd import RND as RND
from .rnd import rnd as rnd
from .sc_weat import SCWEAT as SCWEAT
from .sc_weat import sc_weat as sc_weat
from .weat import WEAT as WEAT
from .weat import weat as weat
from .weat import weat_effect_size as weat_effect_size
