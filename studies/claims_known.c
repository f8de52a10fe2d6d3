/* claims_known.c - which columns the tables have that claims are judged by. */
#include <stdio.h>
#include <string.h>

#include "analyzers/analyzer.h"
#include "base/json.h"
#include "studies/claims.h"

/* A table: its columns, and what `kvfate corpus` adds up, each as VALUE or VALUE=ABOVE/BELOW for
 * a quotient of counts.  Of the first value the columns low, high and documents are plain, of
 * others they begin with the value's name (analyzers/analyzer.h). */
struct known {
    const char *name, *columns, *measures;
    bool analysis; /* of an analyzer of this name, whose pool counts where it is there */
};

static const struct known known[] = {
    {"attention-sparsity", "head layer index form p", "sparsity share=under/tokens", true},
    {"density", "head layer index bin_low bin_high", "share=count/total mean", true},
    {"dilution", "head step",
     "dilution useful_mass rho_u rho_d dilution_retained bound dilution_oracle "
     "preferential_share=preferential/compared",
     true},
    /* the rows of `dilution --mean` at the query of the answer, of each prompt with a needle */
    {"needles",
     "doc head step dilution useful_mass rho_u rho_d dilution_retained bound dilution_oracle "
     "preferential_share",
     "", false},
    {"intermittency", "head layer index criterion class quantity above",
     "share=over/tokens mean=total/defined q50 q90 q99", true},
    {"kv-size", "head layer index at", "size=entries/capacity ratio=entries/length", true},
    {"overlap", "head layer index window p", "overlap=both/last expected kappa", true},
    {"persistence", "head layer index criterion class age", "rate=selected/at_risk shrunk", true},
    {"received", "head layer index", "tokens_share=tokens_needed/tokens gini effective_tokens",
     true},
    {"runs", "head layer index", "mean_run=kept/runs alone_share=alone/kept clustering z", true},
    {"sparsity", "kind head layer index", "sparsity", true},
    {"survival", "head layer index criterion class horizon",
     "fraction=alive/at_risk survival=stayed/entered half_life rmst", true},
    {"variance", "head layer index factor", "epsilon2 eta2 within", true},
    {"words", "word", "kept=count/base_count log_beta", true},
    {"dynamics", "head layer head_index prompt rollout surrogate quantity index x value count n",
     "", true},
    {"heads", "head layer index", "window sink_mass entropy number gist filler", true},
    /* the state file of kvfate eval: a row for each document */
    {"eval-docs",
     "doc doc_hash method options budget nll kl top1_agree kv_end kv_mean kv_peak "
     "triggers",
     "", false},
    {"eval",
     "method budget docs tokens nll nll_low nll_high kl kl_low kl_high top1_agree kv_end "
     "kv_mean kv_peak triggers gates",
     "", false},
};

/* A word of a list that blanks separate. */
static bool listed(const char *list, const char *name)
{
    size_t n = strlen(name);
    for (const char *p = list; *p; p += strspn(p, " ")) {
        size_t len = strcspn(p, " ");
        if (len == n && memcmp(p, name, n) == 0)
            return true;
        p += len;
    }
    return false;
}

/* Whether one measure of n characters gives the column. */
static bool of_measure(const char *m, size_t n, bool first, const char *name)
{
    static const char *const ends[] = {"low", "high", "documents"};
    size_t value = 0, above = 0;
    char full[128];
    while (value < n && m[value] != '=')
        value++;
    for (int k = 0; k < 4; k++) {
        snprintf(full, sizeof full, "%.*s_%s", (int)value, m, k < 3 ? ends[k] : "sum");
        if (strcmp(name, k < 3 && first ? ends[k] : full) == 0)
            return true;
    }
    if (strlen(name) == value && memcmp(name, m, value) == 0)
        return true;
    if (value == n)
        return false;
    m += value + 1;
    n -= value + 1;
    while (above < n && m[above] != '/')
        above++;
    return (strlen(name) == above && memcmp(name, m, above) == 0)
           || (above < n && strlen(name) == n - above - 1
               && memcmp(name, m + above + 1, n - above - 1) == 0);
}

/* What python/kvfate/claims.sh adds to the tables that corpus makes of one document each. */
static const char of_documents[] = "doc source nth method";

static bool has_column(const char *columns, const char *measures, const char *name)
{
    bool first = true;
    if (listed(columns, name) || (*measures && listed(of_documents, name)))
        return true;
    for (const char *m = measures; *m; m += strspn(m, " "), first = false) {
        size_t n = strcspn(m, " ");
        if (of_measure(m, n, first, name))
            return true;
        m += n;
    }
    return false;
}

/* "NAME_low", or "low" where it is there. */
static bool has_interval(const char *columns, const char *measures, const char *name)
{
    char full[128];
    snprintf(full, sizeof full, "%.90s_low", name);
    return has_column(columns, measures, full) || has_column(columns, measures, "low");
}

/* The pool of an analyzer in the words of `known`. */
static void describe_pool(const struct analyzer_pool *p, struct buf *columns, struct buf *measures)
{
    for (int k = 0; p->keys[k]; k++)
        buf_printf(columns, "%s%s", k ? " " : "", p->keys[k]);
    for (int k = 0; p->measures[k].value; k++) {
        const struct analyzer_measure *m = &p->measures[k];
        buf_printf(measures, "%s%s", k ? " " : "", m->value);
        if (m->denominator)
            buf_printf(measures, "=%s/%s", m->numerator ? m->numerator : "", m->denominator);
        if (m->half_life)
            buf_printf(measures, " %s", m->half_life);
    }
}

struct report {
    const struct claim *c;
    const char *table, *columns, *measures;
    struct buf *wrong;
};

static void need(const struct report *r, const char *name)
{
    if (name && !has_column(r->columns, r->measures, name))
        buf_printf(r->wrong, "%s: table %s has no column %s\n", r->c->id, r->table, name);
}

static void check_columns(const struct report *r, const struct claim_side *s)
{
    const struct claim *c = r->c;
    need(r, c->value);
    need(r, c->less);
    need(r, c->with);
    for (int k = 0; k < c->n_unit; k++)
        need(r, c->unit[k]);
    for (const struct json *m = json_first(s->rows); m; m = json_next(m))
        need(r, json_key(m));
    if (c->interval == CLAIM_COLUMNS && !has_interval(r->columns, r->measures, c->value))
        buf_printf(r->wrong, "%s: table %s has no interval of %s\n", c->id, r->table, c->value);
}

static void check_side(const struct claim *c, const struct claim_side *s, struct buf *wrong)
{
    const struct known *k = NULL;
    const struct analyzer *a = analyzer_find(s->table);
    struct buf columns = {0}, measures = {0};
    for (size_t i = 0; i < sizeof known / sizeof *known && !k; i++)
        if (strcmp(known[i].name, s->table) == 0)
            k = &known[i];
    if (!(k && (a || !k->analysis)) && !(a && a->pool)) {
        buf_printf(wrong, "%s: no command makes a table %s\n", c->id, s->table);
        return;
    }
    if (a && a->pool)
        describe_pool(a->pool, &columns, &measures);
    struct report r = {c, s->table, k ? k->columns : "", k ? k->measures : "", wrong};
    if (columns.len) {
        r.columns = columns.data;
        r.measures = measures.len ? measures.data : "";
    }
    check_columns(&r, s);
    buf_finish(&columns);
    buf_finish(&measures);
}

void claims_check(const struct claim *c, struct buf *wrong)
{
    if (c->untestable)
        return;
    check_side(c, &c->of, wrong);
    if (c->paired)
        check_side(c, &c->minus, wrong);
    const struct claim_other *const others[] = {&c->null_check, &c->control};
    for (int k = 0; k < 2; k++) {
        if (others[k]->there)
            check_side(c, &others[k]->of, wrong);
        if (others[k]->there && c->paired)
            check_side(c, &others[k]->minus, wrong);
    }
}
