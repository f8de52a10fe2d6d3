/* claims.h - sentences of papers as statistics with a direction, a null and an interval, and
 * what tables say of them.
 *
 * A register is JSON, {"claim": [{...}, ...]}; docs/studies/claims.md has the keys.  A claim takes
 * rows of one table (and of a second one, where it is about a difference), reduces a column of them
 * to one number, and compares the number and its interval with the null.  A number that other data
 * support as well (the null check), that rests on too few units, or that is one of many, is held
 * back: docs/studies/claims.md tells how a verdict comes about. */
#ifndef KVF_STUDIES_CLAIMS_H
#define KVF_STUDIES_CLAIMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/table_read.h"

struct json;

enum claim_verdict {
    CLAIM_SUPPORTED,
    CLAIM_CONTRADICTED,
    CLAIM_UNDECIDED,      /* the interval covers the null, or q or n does not suffice */
    CLAIM_UNSPECIFIC,     /* the number decides, but does not go beyond the null data that way */
    CLAIM_UNGUARDED,      /* the number decides, and there are no null data */
    CLAIM_NOT_COMPARABLE, /* the table is not what the claim needs */
    CLAIM_UNTESTABLE,     /* the register says so */
    CLAIM_NOT_RUN,        /* a table, a column or the rows are missing */
    CLAIM_VERDICTS
};
enum claim_than { CLAIM_ABOVE, CLAIM_BELOW, CLAIM_BETWEEN };
enum claim_reduce {
    CLAIM_ONE, /* the rows are one row */
    CLAIM_MEAN,
    CLAIM_MEDIAN,
    CLAIM_LEAST,
    CLAIM_LARGEST,
    CLAIM_SPREAD, /* quantile 0.9 less quantile 0.1 */
    CLAIM_SHARE,  /* of units whose value is on the claimed side of `at` */
    CLAIM_SPEARMAN
};
enum claim_interval {
    CLAIM_COLUMNS,
    CLAIM_T,   /* Student's, of a mean */
    CLAIM_BCA, /* the bootstrap, bias-corrected and accelerated */
    CLAIM_PERMUTATION,
    CLAIM_WILSON,
    CLAIM_NONE
};

enum {
    CLAIM_MOST = 1024,        /* claims of a register */
    CLAIM_MOST_UNITS = 65536, /* that a claim resamples */
    CLAIM_MOST_KEYS = 8,      /* columns that name a unit */
    CLAIM_REPLICATES = 2000,
    CLAIM_SAMPLES = 10000 /* permutations, where not all are gone through */
};
#define CLAIM_LEVEL 0.05 /* of p and q, and 1 - coverage of intervals */

/* Which rows of which file. */
struct claim_side {
    const char *table, *run; /* FOLDER/TABLE.tsv, or FOLDER/TABLE.RUN.tsv; run "": none */
    const struct json *rows; /* object: column -> what its cells are; NULL: all rows */
};

/* Other data for the same judgement: of, minus as in the claim. */
struct claim_other {
    bool there;
    struct claim_side of, minus;
};

/* All borrowed from the register. */
struct claim {
    const char *id, *paper, *where, *text;
    const char *fixed;   /* YYYY-MM-DD: when the threshold was fixed; "": not said */
    const char *heads;   /* which other set of heads is meant, where heads or layers are units */
    const char *cluster; /* column of sources of units, or NULL */
    const struct json *needs; /* object: metadata -> what it is, or NULL */
    int64_t least_n;          /* units, or documents of interval columns */
    struct claim_other null_check, control;
    const char *no_null;    /* why no data without meaning can be had, or NULL */
    const char *untestable; /* reason, or NULL: then all below is set */
    struct claim_side of, minus;
    bool paired;                     /* minus is there */
    const char *value, *less, *with; /* columns; less and with may be NULL */
    const char *unit[CLAIM_MOST_KEYS];
    int n_unit;
    enum claim_reduce within; /* of the rows of a unit: the unit's value; never CLAIM_ONE */
    enum claim_reduce reduce; /* of the units */
    enum claim_than than, at_than;
    enum claim_interval interval;
    double at, null, null_high;
};

struct claims {
    struct json *root;   /* owned */
    struct claim *claim; /* owned */
    int n;
};

/* KVF_OK, KVF_E_FORMAT (with a sentence that names the claim), KVF_E_LIMIT, KVF_E_NOMEM. */
int claims_parse(const char *json, size_t n, struct claims *ret, struct kvf_diag *d);
void claims_free(struct claims *c); /* accepts a zeroed struct */

/* Of the data and the null data, paired by unit; NaN: none. */
struct claim_difference {
    double value, low, high, p;
    int64_t units; /* that both have; 0: not paired */
};

struct claim_result {
    enum claim_verdict verdict;
    double value, low, high, p, q; /* NaN: none; q: of claims_judge_all alone */
    enum claim_verdict by_number;  /* the verdict without control and null data */
    double null_value;             /* of the null data; NaN: none */
    struct claim_difference difference;
    double i2;         /* share of the variance of sources' means that is not that of texts; NaN */
    int64_t on_side;   /* units or clusters on the claimed side of the null; -1: not counted */
    int64_t units;     /* that the value is made of */
    int64_t documents; /* -1: the table does not say */
    int64_t left_out;  /* rows without a value, and units that one side alone has */
    bool by_cluster;   /* units are means of clusters */
    const char *null_check; /* "none", "not possible", "not run", "as claimed", "other way",
                               "not beyond": how the data differ from the null data */
    const char *control;    /* the verdict of the matched control, or "none" */
    char why[256];          /* of a verdict that the numbers do not explain; else "" */
};

/* Tables of a folder, each read once. */
struct claims_folder;
/* is_text: as table_read takes it.  NULL: no memory. */
struct claims_folder *claims_folder_create(const char *path, table_text_fn is_text);
void claims_folder_destroy(struct claims_folder *f); /* accepts NULL */
/* NULL and KVF_OK: there is no such table.  An error: the file is there and cannot be read. */
int claims_folder_table(struct claims_folder *f, const struct claim_side *s,
                        const struct table **ret, struct kvf_diag *d);

/* What the tables say of one claim, as if it were the only one.  KVF_OK, or what reading a table
 * gives, or KVF_E_LIMIT, KVF_E_NOMEM. */
int claims_judge(const struct claim *c, struct claims_folder *f, struct claim_result *ret,
                 struct kvf_diag *d);

/* What they say of all, ret[c->n]: p becomes q over those claims that have a p (Benjamini and
 * Hochberg), and a claim whose q is not below CLAIM_LEVEL is undecided. */
int claims_judge_all(const struct claims *c, struct claims_folder *f, struct claim_result *ret,
                     struct kvf_diag *d);

/* The share of simulated samples of n units whose 95 % interval covers the truth, when the units
 * are drawn from a law: 2,000 samples for Student's t, 200 for BCa, fixed seed.  NaN where nothing
 * is resampled (one row, a share, a rank correlation, a theorem) or n < 2. */
enum claim_law { CLAIM_LAW_NORMAL, CLAIM_LAW_EXPONENTIAL, CLAIM_LAW_T3, CLAIM_LAWS };
extern const char *const claim_law_names[CLAIM_LAWS];
int claims_coverage(const struct claim *c, int64_t n, enum claim_law law, double *ret);

/* Whether this program makes the claim's tables, with its columns: adds a line to `wrong` for
 * each that does not exist. */
void claims_check(const struct claim *c, struct buf *wrong);

extern const char *const claim_verdict_names[CLAIM_VERDICTS];
extern const char *const claim_than_names[3];

/* ---- shared by the files of this module */

/* The rows of a side, one unit after the other. */
struct claim_units {
    int64_t n;
    char **name;          /* [n] owned; NULL when the claim names no unit: rows are units */
    double *value, *with; /* [n] of the unit's rows what `within` says; with: their mean */
    int64_t left_out;     /* rows without a value */
    int64_t rows;         /* chosen */
    int64_t first;        /* row of the first, for interval columns */
    int64_t *row;         /* [n] owned: the first row of each */
};
int claims_units(const struct claim *c, const struct claim_side *s, const struct table *t,
                 struct claim_units *ret, struct claim_result *r, struct kvf_diag *d);
void claims_units_free(struct claim_units *u); /* accepts a zeroed struct */

/* The values of n units, or of the means of their clusters, and room to work. */
struct claim_sample {
    int64_t n;
    double *value, *with;            /* [n] */
    double *a, *b;                   /* [n] scratch */
    int64_t *which;                  /* [n] scratch */
    const struct claim_sample *less; /* borrowed: the statistic of its same units is subtracted;
                                        NULL: none */
};
int claim_sample_create(int64_t n, struct claim_sample *ret); /* KVF_OK, KVF_E_NOMEM */
void claim_sample_free(struct claim_sample *s);               /* accepts a zeroed struct */
double claims_statistic(const struct claim *c, struct claim_sample *s);
/* Sets low, high and p of *r, whose value is there; all stay NaN for less than two units. */
int claims_interval(const struct claim *c, struct claim_sample *s, struct claim_result *r);
double claims_p_of_z(double z); /* two-sided, of the normal law */
/* p of the claim of those of its two nulls: the larger inside, that of the nearer outside. */
double claims_p_between(const struct claim *c, double value, double low, double high);

/* As claims_interval of s less s->less, whose units are the same: *r has the value. */
int claims_difference(const struct claim *c, struct claim_sample *s, struct claim_difference *r);

/* Replaces the units of s, which[i] of u each, by the means of their clusters, which are a column
 * of the table t, or of the table `sources` of the folder, where the unit's column names the row. A
 * unit without a cluster makes the verdict CLAIM_NOT_RUN.  Sets r->i2. */
int claims_clusters(const struct claim *c, struct claims_folder *f, const struct table *t,
                    const struct claim_units *u, const int64_t *which, struct claim_sample *s,
                    struct claim_result *r, struct kvf_diag *d);

/* Whether the table is what the claim needs; else false after *r. */
bool claims_comparable(const struct claim *c, const struct claim_side *s, const struct table *t,
                       struct claim_result *r);
/* As claims_number, of a number: whether v is what the text asks for. */
bool claims_number_holds(const char *text, double v);

/* Whether a text is a number with an optional comparison in front: NUMBER, T, T/NUMBER,
 * NUMBER T.  *ret_op: '=' (nearest when it has a T), '!', '<', '>', 'l' (<=), 'g' (>=).
 * Scaled: *ret_value is a factor of T. */
bool claims_number(const char *text, char *ret_op, double *ret_value, bool *ret_scaled);

#endif
