"""Public functions and metrics without an entry in the table, and the reason."""

WITHOUT_QUANTITY = {
    "association": (
        *("calculate_ranking_correlations", "create_ranking", "fetch_debias_multiclass", "fetch_debiaswe"),
        *("fetch_eds", "fetch_gn_glove", "load_bingliu", "load_weat", "load_weat_w2v", "plot_eat_map"),
        *("read_sentence_pairs", "read_sentence_triples"),
        *("plot_queries_results", "plot_ranking", "plot_ranking_correlations", "preprocess_word"),
    ),
    "posterior": (
        *("dirichlet_prior", "get_experiment_aggregator"),
        *("interpret_i2", "load_csv", "plot_difference", "plot_distributions", "plot_forest"),
        *("temporary_registrations", "validate_confusion_matrix"),
    ),
    "retrieval": ("count_relevant", "open_embeddings"),
    "structured": (
        *("derive", "json_schema", "macro_average", "metametric", "micro_average", "reachability"),
        *("read_conll_coref", "read_penman", "read_tags", "read_triples"),
    ),
    "uncertainty": ("as_scalars",),
}
BASES = "association.BaseMetric", "structured.CountMetric", "structured.OverlapMetric"
OF_LANGUAGE_MODELS = (
    *("association.log_probabilities", "association.pseudo_log_likelihood", "association.score_pairs"),
    "association.sentence_log_likelihood",
)
DRAWS = ("sample_confusion_matrices", "sample_dirichlet", "sample_log_gamma", "sample_paired_matrices", "sample_sums")
DENSITIES = (
    *("beta_icdf", "kde", "pool_beta", "pool_correlated", "pool_fixed_effects", "pool_gamma", "pool_histogram"),
    *("pool_random_effects", "truncated_gamma_icdf", "truncated_normal_icdf", "truncated_t_icdf"),
)
UNCOMPARED = {
    **{f"{domain}.{name}": "gives no number" for domain, names in WITHOUT_QUANTITY.items() for name in names},
    **dict.fromkeys(BASES, "a base of metrics"),
    **{f"posterior.{name}": "gives random draws" for name in DRAWS},
    **{f"uncertainty.{name}": "gives samples or a density" for name in DENSITIES},
    "association.ceat": "samples contexts; the inputs of `CEAT` are sampled already",
    **dict.fromkeys(
        OF_LANGUAGE_MODELS, "against loops over single texts in tests/association/test_language_model_scores.py"
    ),
    "posterior.compute_confusion_matrix": "gives the counts that are the inputs of the entries of matrices",
    "posterior.sums_from_matrices": "gives the counts that the metrics of matrices read",
    "posterior.items_needed": "the only plan of the number of items",
    "posterior.expected_reward": "the only score of ranks of samples",
    "posterior.estimate_i2": "the only fraction of variance; its parts are `heterogeneity_dl` and `heterogeneity_pm`",
    "posterior.heterogeneity_pm": "another estimate than `heterogeneity_dl`, by iteration",
    "retrieval.expected_mutual_info": "a part of `adjusted_mutual_info`",
    "retrieval.mutual_info": "a part of `normalized_mutual_info`",
    "structured.CorefScores": "against `EntitySet.metric` in tests/structured/test_coref_oracle.py",
    "structured.EventScores": "against `EventSet.metric` in tests/structured/test_events.py",
    "structured.graph_overlap": "the only overlap of graphs",
    "uncertainty.plan": "the only plan of a comparison",
    "uncertainty.compare_samples": "the only comparison of draws",
    "uncertainty.compare_data_sets": "the only hierarchical model",
    "uncertainty.compare_folds": "the only test of correlated folds",
    "uncertainty.correct_p_values": "the only correction of p-values",
    "uncertainty.five_by_two_p_value": "the only test of five repetitions of two folds",
}
