"""Public functions and metrics that no other one computes too, although their annotations promise a number."""

PRIORS_AND_PARTS = {
    "posterior": ("compute_confusion_matrix", "dirichlet_prior", "load_csv", "validate_confusion_matrix"),
    "retrieval": ("count_relevant", "expected_mutual_info", "mutual_info"),
    "structured": ("reachability",),
}
DRAWS = "sample_confusion_matrices", "sample_dirichlet", "sample_log_gamma", "sample_paired_matrices"
ALONE = "compare_samples", "compare_data_sets", "compare_folds", "correct_p_values", "five_by_two_p_value"
OF_LANGUAGE_MODELS = "log_probabilities", "pseudo_log_likelihood", "score_pairs", "sentence_log_likelihood"
UNCOMPARED = {
    **{f"{domain}.{name}": "makes inputs or parts" for domain, names in PRIORS_AND_PARTS.items() for name in names},
    **{f"posterior.{name}": "gives random draws" for name in DRAWS},
    **{f"uncertainty.{name}": "the only one of its kind" for name in ALONE},
    **{f"association.{name}": "against single texts in test_language_model_scores.py" for name in OF_LANGUAGE_MODELS},
    "association.ceat": "samples contexts; the inputs of `CEAT` are sampled already",
    "structured.CorefScores": "against `EntitySet.metric` in tests/structured/test_coref_oracle.py",
    "structured.EventScores": "against `EventSet.metric` in tests/structured/test_events.py",
}
