/* signature.h - the behaviour of a query head, in numbers that can be compared between heads, texts
 * and models.
 *
 * From mass.sum (M_i, attention received by token i from all queries), mass.max, last_selected.C,
 * entropy and the classes of the tokens.  Rows of attention sum to one, so that with S = 4 first
 * tokens and m the mean of M_i over the rest, sink_mass = 1 - m            is the share of the
 * queries t >= S that the first S receive,
 *     (sum of M_i over i < P) - P is the mass that queries t >= P give to tokens before P,
 * both exact.  The second one, over S <= i < P and with u_i = M_i / m for M_i (which takes the
 * sink's share to be the same at all t), is the share(P) = sum (u_i - 1) / (T - P) of their other
 * mass.
 *
 * Halves: alternate blocks of 32 tokens (and of steps, for the entropy); sums over tokens before P
 * are then scaled by the number of all of them. */
#pragma once

#include <stdbool.h>

#include "analyzers/common.h"

enum {
    SIGNATURE_FIRST = 4,  /* the first tokens */
    SIGNATURE_BLOCK = 32, /* tokens of a block of a half */
    SIGNATURE_LEAST = 32, /* fewer tokens than this have no signature */
    SIGNATURE_GROUP = 8,  /* fewer tokens of a class than this, or of others, give no preference */
};

/* The columns that signatures read; `when` is a string literal: when they are needed. */
#define SIGNATURE_COLUMNS(when)                                                                    \
    {"mass.sum", KVF_SPACE_QUERY, KVF_AXIS_TOKEN, COLUMN_ASKED, when},                             \
        {"mass.max", KVF_SPACE_QUERY, KVF_AXIS_TOKEN, COLUMN_ASKED, when},                         \
        {"last_selected.*", KVF_SPACE_QUERY, KVF_AXIS_TOKEN, COLUMN_ASKED,                         \
         when ", of --criterion"},                                                                 \
        {"entropy", KVF_SPACE_QUERY, KVF_AXIS_STEP, COLUMN_ASKED, when},                           \
        {"lse", KVF_SPACE_QUERY, KVF_AXIS_STEP, COLUMN_HELPS, "the evidence of logits"},           \
        {"evict_step", KVF_SPACE_KV, KVF_AXIS_TOKEN, COLUMN_HELPS,                                 \
         "what was evicted counts as seen"},                                                       \
    {                                                                                              \
        "tokens.role", KVF_SPACE_RUN, KVF_AXIS_TOKEN, COLUMN_HELPS, "where the prompt ends"        \
    }

/* name, unit, scale: a difference of `scale` counts as 1 in a distance; 0 = not counted */
#define SIGNATURE_MAP(X)                                                                           \
    X(SINK, "sink_mass", "", 1)                                                                    \
    X(WINDOW, "window", "step", 4) /* in octaves */                                                \
    X(SPREAD, "spread", "octave", 3)                                                               \
    X(LOW, "mode_low", "step", 0)                                                                  \
    X(HIGH, "mode_high", "step", 0)                                                                \
    X(APART, "modes_apart", "octave", 3)                                                           \
    X(LESSER, "lesser_mode", "", 0)                                                                \
    X(TWO, "two_modes", "", 0)                                                                     \
    X(RECENT, "recent", "", 1)                                                                     \
    X(LAST_USE, "last_use", "step", 8) /* in octaves */                                            \
    X(NEVER, "never", "", 1)                                                                       \
    X(SURVIVAL_64, "survival_64th", "", 1)                                                         \
    X(SURVIVAL_16, "survival_16th", "", 1)                                                         \
    X(SURVIVAL_4, "survival_4th", "", 1)                                                           \
    X(SURVIVAL_2, "survival_half", "", 1)                                                          \
    X(SPARSITY, "last_use_sparsity", "", 1)                                                        \
    X(NUMBER, "number", "", 1)                                                                     \
    X(GIST, "gist", "", 1)                                                                         \
    X(FILLER, "filler", "", 1)                                                                     \
    X(PROMPT, "prompt", "", 1)                                                                     \
    X(UNEVEN, "uneven", "", 3)                                                                     \
    X(TOP, "top_tenth", "", 1)                                                                     \
    X(RUNS, "runs", "", 1)                                                                         \
    X(RISES, "rises", "", 4)                                                                       \
    X(ENTROPY, "entropy", "", 1)                                                                   \
    X(RESIDENCE, "residence", "", 1)                                                               \
    X(LSE, "lse_mean", "nat", 0)

enum signature_feature {
#define X(id, name, unit, scale) SIGNATURE_##id,
    SIGNATURE_MAP(X)
#undef X
        N_SIGNATURE
};

enum { N_HORIZONS = 4, N_GROUPS = 3 }; /* of the survival; number, gist, filler */

struct signature {
    double f[N_SIGNATURE];                                 /* NaN: not defined */
    int64_t tokens;                                        /* behind it, without the first four */
    int64_t at_risk[N_HORIZONS], alive[N_HORIZONS], never; /* counts behind shares */
    int64_t in_group[N_GROUPS];
};

const char *signature_name(int feature);
const char *signature_unit(int feature);

bool signature_counts(int feature); /* in distances */
/* A value as distances take it: of window and last_use log2(1 + v), ratios that have no end cut
 * (recent, prompt and classes to [-1, 1], uneven to 4, rises to [-2, 2]), by the scale. */
double signature_on_scale(int feature, double v);

/* Root of the mean square of the differences, on scale, over the features that count and both have;
 * NaN if it is missing.  *ret_largest: the feature that differs most, -1 if all are equal; may be
 * NULL. */
double signature_distance(const struct signature *a, const struct signature *b, int *ret_largest);

/* The mean of f over n signatures, for each feature over the signatures that have it. */
void signature_mean(const struct signature *s, size_t n, struct signature *ret);

struct signature_source;

/* Columns, classes and roles of a trace, which must outlive it.  criterion: of last_selected;
 * classes: a file of rules or NULL.  --head and --tokens of args apply. --tokens chooses the tokens
 * and steps of all features except the features of complete texts: sink_mass, recent and prompt.
 * criterion NULL: signatures of KV heads, from the retention of gates instead of attention
 * (retention_rows in signature.c).
 * KVF_OK; KVF_E_NOTFOUND naming the probe that records the missing column; others. */
int signature_open(struct kvf_trace *t, const struct analyzer_args *args, const char *criterion,
                   const char *classes, struct signature_source **ret, struct kvf_diag *d);
void signature_close(struct signature_source *s); /* accepts NULL */
const struct head_list *signature_heads(const struct signature_source *s);

/* The signatures of head h of the list: over all tokens (ret[0]) and over each half (ret[1],
 * ret[2]).  A column without a number where one is needed gives NaN.  KVF_OK or an error of
 * reading. */
int signature_read(struct signature_source *s, int h, struct signature ret[3], struct kvf_diag *d);

/* The signatures of all heads as above, [heads][3]; free with mem_free. */
int signature_read_all(struct signature_source *s, struct signature **ret, struct kvf_diag *d);
