"""Options of plots as prob_conf_mat spells them."""

from collections.abc import Mapping
from typing import Any


def pairs(text: str) -> dict[str, str]:
    words = text.split()
    return dict(zip(words[::2], words[1::2], strict=True))


PARTS = pairs(  # beginnings of names of options, and the parts of a plot; of two that fit the first counts
    "edge edge area area median_line median hdi_lines interval hdi_line interval obs_point observed "
    "extrema_lines extrema extrema_line extrema base_line base experiment_name name experiment_info info "
    "proportions proportions rope_area rope neg_sig_diff_area negative pos_sig_diff_area positive "
    "min_sig_diff_lines rope_edges agg_median_line aggregate_line agg_median aggregate median median"
)
KEYWORDS = pairs(  # ends of these names, and keywords of matplotlib
    "colour color alpha alpha format linestyle width linewidth marker marker size markersize height markersize "
    "marker_size markersize marker_line_width markeredgewidth marker_edge_colour markeredgecolor "
    "marker_face_colour markerfacecolor"
)
FOREST: Mapping[str, Mapping[str, Any]] = {
    "median": {"color": "black", "marker": "s", "markersize": 7, "linestyle": ""},
    "interval": {"color": "black", "linewidth": 1.0},
    "aggregate": {"color": "black", "marker": "D", "markersize": 9, "markerfacecolor": "white", "linestyle": ""},
    "aggregate_line": {"color": "black", "linewidth": 0.8, "linestyle": "--"},
    **dict.fromkeys(("name", "info", "legend"), {}),
}
OF_PART = {("extrema", "linewidth"): "markeredgewidth", ("negative", "color"): "facecolor"}


def plot_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options of a plot as `posterior.Study` takes them: `median_line_colour="red"` is a `style` of a part."""
    style: dict[str, dict[str, Any]] = {}
    hide, renamed = [], {}
    for name, value in options.items():
        is_shown = name.startswith("plot_")
        start = next((start for start in PARTS if name.removeprefix("plot_").startswith(start)), None)
        end = "" if start is None else name.removeprefix("plot_").removeprefix(start).removeprefix("_")
        if start is None or not (is_shown or end in KEYWORDS):
            renamed[{"background_colour": "background"}.get(name, name)] = value
        elif not is_shown and value is not None:
            part, keyword = PARTS[start], KEYWORDS[end]
            style.setdefault(part, {})[OF_PART.get((part, keyword), keyword)] = value
        elif is_shown and not value:
            hide.append(PARTS[start])
    return {"style": style, "hide": hide, **renamed}
