"""Names that the help lists, repeated here because importing the classes imports torch. A test compares them."""

ASSOCIATION = ("ceat", "directbias", "ect", "gweat", "mac", "mleat", "ripa", "rnd", "rnsb", "same", "scweat", "weat")
CORRECTIONS = ("max-t", "holm", "bh")
DISTANCES = ("l2", "sqeuclidean", "ip", "cosine")
POSTERIOR = (
    "diag_mass, prevalence, model_bias, tpr, fnr, ppv, fdr, fpr, tnr, for, npv, acc, ba, mcc, kappa, f1, fbeta, bm, "
    "delta_p, p4, jaccard, plr, lplr, nlr, lnlr, dor, ldor, pt, precision_gain, recall_gain, f1_gain, fbeta_gain, mae, "
    "mse, rmse, 1off, pwkappa"
)
POSTERIOR_AVERAGES = "macro, weighted, micro, select_positive, harmonic, geometric, min, max"
RETRIEVAL = (
    "AMI, ARI, FMI, NMI, cluster_accuracy, completeness, homogeneity, mean_auroc, mean_average_precision, "
    "mean_average_precision_at_r, mean_inp, mean_rank, mean_reciprocal_rank, median_rank, ndcg, "
    "nearest_centroid_accuracy, r_precision, v_measure, hit_rate_at_K, mean_average_precision_at_K, ndcg_at_K, "
    "precision_at_K, recall_at_K"
)
RETRIEVAL_OF_NEIGHBORS = (
    "mean_average_precision",
    "mean_average_precision_at_r",
    "mean_reciprocal_rank",
    "precision_at_1",
    "r_precision",
)
TAGS = ("lenient", "iob1", "iob2", "ioe1", "ioe2", "iobes", "bilou")
TREC = ("map", "ndcg_cut_10", "recip_rank", "P_10", "recall_100")
