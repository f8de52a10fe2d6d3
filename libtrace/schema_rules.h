/* schema_rules.h - the possible values of the columns of <kvf/schema.h>, as data: a line for
 * each column, in the order of that page.  judge.c compares traces with it, and schema.c the names
 * of columns that are to be written; private to libtrace. */
#pragma once

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include <kvf/trace.h>

/* A bound of the value at token or step i of a trace of T steps: c + of_i * i + of_T * T. */
struct rule_bound {
    double c, of_i, of_T;
};

struct rule {
    const char *name; /* ends with '*': every column with this prefix */
    uint8_t spaces;   /* 1u << enum kvf_space: it may have heads of these */
    uint8_t axis;     /* enum kvf_axis */
    struct rule_bound least, most;
    bool nan;   /* NaN is a value: not defined, or none */
    bool never; /* all ones is a value: alive, or never */
};

#define RULE_RUN (1u << KVF_SPACE_RUN)
#define RULE_KV (1u << KVF_SPACE_KV)
#define RULE_QUERY (1u << KVF_SPACE_QUERY)
#define RULE_TOKEN KVF_AXIS_TOKEN
#define RULE_STEP KVF_AXIS_STEP

/* clang-format off */
#define RULE_ANY_LEAST {-INFINITY, 0, 0}
#define RULE_ANY       {INFINITY, 0, 0}
#define RULE_IS(x)     {x, 0, 0}
#define RULE_ROUNDED   {-1e-3, 0, 0}  /* a sum or a logarithm that is 0 but for rounding */
#define RULE_SHARE     {1.001, 0, 0}  /* a share, or a sum of weights of one query, with rounding */
#define RULE_LARGEST   {3.5e38, 0, 0} /* finite */
#define RULE_NEXT      {1, 1, 0}      /* the step after that of the token */
#define RULE_OWN       {0, 1, 0}      /* the step of the token */
#define RULE_STEPS     {0, 0, 1}
#define RULE_LAST      {-1, 0, 1}     /* the last step */
#define RULE_AGE       {-1, -1, 1}    /* how old the token is at the last step */
#define RULE_QUERIES   {0, -1, 1}     /* queries from its own on */
#define RULE_MASS      {1e-3, -1.001, 1.001} /* all the weight of these queries */
#define RULE_SEEN      {1, 1, 0}      /* entries that there are at a step */

/* X(name, spaces, axis, least, most, nan, never) */
#define SCHEMA_RULES(X)                                                                            \
    X("tokens.id", RULE_RUN, RULE_TOKEN, RULE_IS(0), RULE_ANY, 0, 0)                               \
    X("tokens.role", RULE_RUN, RULE_TOKEN, RULE_IS(0), RULE_IS(4), 0, 0)                           \
    X("nll", RULE_RUN, RULE_TOKEN, RULE_ROUNDED, RULE_ANY, 1, 0)                                   \
    X("evict_step", RULE_KV | RULE_QUERY, RULE_TOKEN, RULE_NEXT, RULE_STEPS, 0, 1)                 \
    X("evict_reason", RULE_KV | RULE_QUERY, RULE_TOKEN, RULE_IS(0), RULE_IS(5), 0, 0)              \
    X("evict_score", RULE_KV | RULE_QUERY, RULE_TOKEN, RULE_ANY_LEAST, RULE_ANY, 1, 0)             \
    X("evict_margin", RULE_KV | RULE_QUERY, RULE_TOKEN, RULE_IS(0), RULE_ANY, 1, 0)                \
    X("evict_tie", RULE_KV | RULE_QUERY, RULE_TOKEN, RULE_IS(0), RULE_IS(1), 0, 0)                 \
    X("evict_rank", RULE_KV | RULE_QUERY, RULE_TOKEN, RULE_IS(0), RULE_LAST, 0, 1)                 \
    X("log_beta", RULE_KV, RULE_TOKEN, RULE_ANY_LEAST, RULE_IS(1e-6), 0, 0)                        \
    X("write_gate", RULE_KV, RULE_TOKEN, RULE_IS(0), RULE_IS(1), 0, 0)                             \
    X("importance", RULE_KV, RULE_TOKEN, RULE_ANY_LEAST, RULE_ANY, 0, 0)                           \
    X("key_norm", RULE_KV, RULE_TOKEN, RULE_IS(0), RULE_LARGEST, 0, 0)                             \
    X("saliency", RULE_KV, RULE_TOKEN, {-3.5e38, 0, 0}, RULE_LARGEST, 0, 0)                        \
    X("read.count", RULE_QUERY, RULE_TOKEN, RULE_IS(0), RULE_QUERIES, 0, 0)                        \
    X("last_selected.*", RULE_QUERY, RULE_TOKEN, RULE_IS(0), RULE_AGE, 0, 1)                       \
    X("selected_at.*", RULE_QUERY, RULE_TOKEN, RULE_IS(0), RULE_ANY, 0, 0)                         \
    X("first_unselected.*", RULE_QUERY, RULE_TOKEN, RULE_IS(0), RULE_AGE, 0, 1)                    \
    X("n_selected.*", RULE_QUERY, RULE_TOKEN, RULE_IS(0), RULE_QUERIES, 0, 0)                      \
    X("n_returns.*", RULE_QUERY, RULE_TOKEN, RULE_IS(0), RULE_QUERIES, 0, 0)                       \
    X("longest_gap.*", RULE_QUERY, RULE_TOKEN, RULE_IS(0), RULE_QUERIES, 0, 0)                     \
    X("seen", RULE_KV | RULE_QUERY, RULE_TOKEN, RULE_ANY_LEAST, RULE_ANY, 0, 0)                    \
    X("out_norm", RULE_QUERY, RULE_TOKEN, RULE_IS(0), RULE_LARGEST, 0, 0)                          \
    X("mass.sum", RULE_QUERY, RULE_TOKEN, RULE_IS(0), RULE_MASS, 0, 0)                             \
    X("mass.max", RULE_QUERY, RULE_TOKEN, RULE_IS(0), RULE_SHARE, 0, 0)                            \
    X("plan.mass", RULE_QUERY, RULE_TOKEN, RULE_IS(0), RULE_MASS, 0, 0)                            \
    X("window.*", RULE_KV, RULE_TOKEN, RULE_IS(0), RULE_SHARE, 1, 0)                               \
    X("window16.*", RULE_KV, RULE_TOKEN, RULE_IS(0), RULE_SHARE, 1, 0)                             \
    X("under.*", RULE_QUERY, RULE_STEP, RULE_IS(0), RULE_SEEN, 0, 0)                               \
    X("lse", RULE_QUERY, RULE_STEP, {-3.5e38, 0, 0}, RULE_LARGEST, 0, 0)                           \
    X("entropy", RULE_QUERY, RULE_STEP, RULE_ROUNDED, RULE_LARGEST, 0, 0)                          \
    X("copy.top", RULE_QUERY, RULE_STEP, RULE_IS(0), RULE_OWN, 0, 1)                               \
    X("copy.*", RULE_QUERY, RULE_STEP, RULE_IS(0), RULE_SHARE, 0, 0)                               \
    X("received.*", RULE_RUN, RULE_STEP, RULE_IS(-1), RULE_SHARE, 1, 0)                            \
    X("query.*", RULE_RUN, RULE_STEP, {-3.5e38, 0, 0}, RULE_LARGEST, 0, 0)                         \
    X("useful.*", RULE_QUERY, RULE_STEP, RULE_IS(0), RULE_SHARE, 1, 0)                             \
    X("dilution.*", RULE_QUERY, RULE_STEP, RULE_ROUNDED, RULE_SHARE, 1, 0)                         \
    X("size.*", RULE_QUERY, RULE_STEP, RULE_IS(0), RULE_SEEN, 0, 0)                                \
    X("near.*", RULE_QUERY, RULE_STEP, RULE_IS(0), RULE_SEEN, 0, 0)                                \
    X("kept.*", RULE_QUERY, RULE_STEP, RULE_IS(0), RULE_SHARE, 1, 0)                               \
    X("rho_u.*", RULE_QUERY, RULE_STEP, RULE_ROUNDED, RULE_ANY, 1, 0)                              \
    X("rho_d.*", RULE_QUERY, RULE_STEP, RULE_ROUNDED, RULE_ANY, 1, 0)                              \
    X("beta.*", RULE_QUERY, RULE_STEP, RULE_ROUNDED, RULE_ANY, 1, 0)                               \
    X("shadow.kept_mass", RULE_QUERY, RULE_STEP, RULE_IS(0), RULE_SHARE, 1, 0)                     \
    X("shadow.oracle_mass", RULE_QUERY, RULE_STEP, RULE_IS(0), RULE_SHARE, 1, 0)                   \
    X("shadow.output_error", RULE_QUERY, RULE_STEP, RULE_IS(0), RULE_ANY, 1, 0)                    \
    X("shadow.ghost_hits", RULE_QUERY, RULE_TOKEN, RULE_IS(0), RULE_QUERIES, 0, 0)                 \
    X("shadow.first_hit", RULE_QUERY, RULE_TOKEN, RULE_OWN, RULE_LAST, 0, 1)                       \
    X("shadow.ghost_mass", RULE_QUERY, RULE_TOKEN, RULE_IS(0), RULE_MASS, 0, 0)                    \
    X("shadow.nll", RULE_RUN, RULE_TOKEN, RULE_ROUNDED, RULE_ANY, 1, 0)                            \
    X("shadow.kl", RULE_RUN, RULE_STEP, RULE_ROUNDED, RULE_ANY, 1, 0)                              \
    X("shadow.residual_error.*", RULE_RUN, RULE_STEP, RULE_IS(0), RULE_ANY, 1, 0)
/* clang-format on */

/* The line of a column; NULL: the name is not of <kvf/schema.h>. */
const struct rule *schema_rule(const char *name);
/* Whether a new blob may have this name: one of <kvf/schema.h>, or one of one's own. */
bool blob_name_known(const char *name);
