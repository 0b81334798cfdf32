"""Functions behind the classes of `tensormetrics.structured`, and the types of tensors that they take."""

from .tensors.boxes import box_iou
from .tensors.graph import graph_overlap, reachability
from .tensors.latent.latent import latent_overlap
from .tensors.normalizers import normalize
from .tensors.overlap import Overlap, Pairs, multiset_overlap, set_overlap
from .tensors.sequence import sequence_overlap

__all__ = ["multiset_overlap", "set_overlap", "sequence_overlap", "latent_overlap", "graph_overlap"]
__all__ += ["Overlap", "Pairs", "box_iou", "normalize", "reachability"]
