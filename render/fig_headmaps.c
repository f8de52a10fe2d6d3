/* fig_headmaps.c - declares the layer x head maps, one row each; headmap.c draws them. */
#include "render/figures.h"
#include "render/headmap.h"

/* Defines the figure of a map with its common fields. */
#define HEADMAP(symbol, ...)                                                                       \
    const struct figure symbol = {.style_bytes = sizeof(struct headmap_style),                     \
                                  .cmap = "viridis",                                               \
                                  .side_by_side = true,                                            \
                                  .size = headmap_size,                                            \
                                  .caption = headmap_caption,                                      \
                                  .draw = headmap_draw,                                            \
                                  __VA_ARGS__}

/* The columns that every map needs, and the columns of the row. */
#define NEEDS(columns) "head:text layer index " columns

/* The keys of a map: VALUES(the default, all), and a FILTER for each column that selects rows. */
#define KEYS(...)                                                                                  \
    (const struct opt[])                                                                           \
    {                                                                                              \
        __VA_ARGS__,                                                                               \
        {                                                                                          \
            .type = OPT_END                                                                        \
        }                                                                                          \
    }
#define VALUES(usual, ...)                                                                         \
    WORD_KEY(struct headmap_style, value, usual, "the column that is drawn", __VA_ARGS__),         \
        TEXT_KEY(struct headmap_style, panel, "COLUMN", "a map for each value of a column",        \
                 .absent = "one map, or one for each trace"),                                      \
        WORD_KEY(struct headmap_style, minus, "no", "each map less the first", "no", "yes")
/* Key i of the columns that select rows.  Without it the value of the first row applies, or
 * `otherwise`. */
#define FILTER(i, column, otherwise)                                                               \
    {                                                                                              \
        .type = OPT_STR, .name = column, .offset = offsetof(struct headmap_style, row[i]),         \
        .arg = "VALUE", .help = "the rows with this value of the column", .absent = otherwise      \
    }
#define FIRST "that of the first row"

HEADMAP(fig_agreement_map, .name = "agreement-map", .table = "agreement",
        .summary = "layer x head map of how far gates agree", .needs = NEEDS("rho overlap"),
        .style = KEYS(VALUES("rho", "rho", "overlap", "kept"), FILTER(0, "a", FIRST),
                      FILTER(1, "b", "all, each a map")),
        .map = &(const struct headmap){.label = "rank correlation",
                                       .fractions = "overlap",
                                       .panel = "b",
                                       .filter = {{.word = "of trace", .about = "trace_"},
                                                  {.word = "with trace", .about = "trace_"}}});

/* G-KV, figure 9, by head. */
HEADMAP(fig_attention_sparsity_map, .name = "attention-sparsity-map", .table = "attention-sparsity",
        .summary = "layer x head map of the attention sparsity at one p",
        .needs = NEEDS("p sparsity"),
        .style = KEYS(VALUES("sparsity", "sparsity", "share"), FILTER(0, "form", FIRST),
                      FILTER(1, "p", FIRST)),
        .map = &(const struct headmap){.label = "fraction below p \xc3\x97 max",
                                       .fractions = "sparsity share"});

HEADMAP(fig_density_map, .name = "density-map", .table = "density",
        .summary = "mean position in the text of the cached entries of each head",
        .needs = NEEDS("mean"), .style = KEYS(VALUES("mean", "mean")),
        .map = &(const struct headmap){.label = "mean position of cached entries",
                                       .fractions = "mean"});

HEADMAP(
    fig_dilution_map, .name = "dilution-map", .table = "dilution",
    .summary = "layer x head map of the attention to entries outside the useful set",
    .needs = NEEDS("step dilution"),
    .style = KEYS(VALUES("dilution", "dilution", "useful_mass", "rho_u", "rho_d",
                         "dilution_retained", "bound", "dilution_oracle", "useful_entries")),
    .map = &(const struct headmap){
        .label = "dilution",
        .fractions = "dilution useful_mass rho_u rho_d dilution_retained bound dilution_oracle"});

HEADMAP(fig_ghosts_map, .name = "ghosts-map", .table = "ghosts",
        .summary = "layer x head map of later use of evicted entries", .needs = NEEDS("hits mass"),
        .style = KEYS(VALUES("mass", "mass", "hits")),
        .map = &(const struct headmap){.label = "attention lost per entry"});

HEADMAP(fig_heads_map, .name = "heads-map", .table = "heads",
        .summary = "layer x head map of one column of the evidence of kinds",
        .needs = NEEDS("kind:text score:either"),
        .style = KEYS(VALUES("score", "score", "sink_mass", "recent", "window", "spread",
                             "last_use", "never", "uneven", "top_tenth", "entropy", "number",
                             "gist", "filler", "prompt", "residence", "last_use_sparsity")),
        .map = &(const struct headmap){
            .label = "score of its kind",
            .fractions = "score sink_mass recent never top_tenth entropy number gist filler prompt "
                         "residence last_use_sparsity"});

HEADMAP(fig_intermittency_map, .name = "intermittency-map", .table = "intermittency",
        .summary = "layer x head map of the dynamics of attention",
        .needs = NEEDS("quantity:text above share"),
        .style = KEYS(VALUES("share", "share", "mean", "q50", "q90", "q99", "most"),
                      FILTER(0, "criterion", FIRST), FILTER(1, "quantity", "returns"),
                      FILTER(2, "above", FIRST), FILTER(3, "class", "all")),
        .map = &(const struct headmap){
            .label = "fraction of tokens",
            .fractions = "share",
            .filter = {[1] = {.usual = "returns"}, [3] = {.usual = "all"}}});

/* WG-KV, figure 13. */
HEADMAP(fig_kv_size, .name = "kv-size", .table = "kv-size",
        .summary = "how large the cache of each head is, as layer x head maps",
        .needs = NEEDS("at:text size"),
        .style = KEYS(VALUES("size", "size", "ratio", "entries", "step", "head_budget"),
                      FILTER(0, "at", "all, each a map")),
        .map = &(const struct headmap){.label = "cached fraction",
                                       .fractions = "size ratio",
                                       .panel = "at",
                                       .filter = {{.usual = "end"}}});

HEADMAP(fig_persistence_map, .name = "persistence-map", .table = "persistence",
        .summary = "layer x head map of how often tokens are selected at one age",
        .needs = NEEDS("age shrunk"),
        .style = KEYS(VALUES("shrunk", "shrunk", "rate", "strength"), FILTER(0, "criterion", FIRST),
                      FILTER(1, "age", "T / 4"), FILTER(2, "class", "all")),
        .map = &(const struct headmap){
            .label = "selected",
            .fractions = "shrunk rate",
            .filter = {[1] = {.of_length = 0.25}, [2] = {.usual = "all"}}});

/* TRIM-KV, figure 5c. */
HEADMAP(fig_sparsity, .name = "sparsity", .table = "sparsity",
        .summary = "layer x head map of the sparsity", .needs = NEEDS("kind:text sparsity"),
        .style = KEYS(VALUES("sparsity", "sparsity"), FILTER(0, "kind", FIRST)),
        .map = &(const struct headmap){.label = "sparsity", .fractions = "sparsity"});

/* DBTrimKV, figure 2b. */
HEADMAP(fig_survival_map, .name = "survival-map", .table = "survival",
        .summary = "layer x head map of the survival at one horizon",
        .needs = NEEDS("criterion:text horizon fraction"),
        .style = KEYS(VALUES("fraction", "fraction", "half_life"), FILTER(0, "criterion", FIRST),
                      FILTER(1, "horizon", "T / 4"), FILTER(2, "class", "all")),
        .map = &(const struct headmap){
            .label = "fraction still in use",
            .held = "fraction still cached",
            .fractions = "fraction",
            .filter = {[1] = {.of_length = 0.25, .word = "at age"}, [2] = {.usual = "all"}}});
