/* cmd_claims.c - what tables say of the sentences of a register. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "base/table_io.h"
#include "cli/claims_embedded.h"
#include "cli/commands.h"
#include "cli/figure_options.h"
#include "cli/output.h"
#include "cli/runner.h"
#include "studies/claims.h"

enum { MOST_BYTES = 1 << 20 };

struct job {
    const char *out, *file;
    bool json, check, coverage;
    struct figure_options look;
    struct claims claims;
    struct claim_result *result; /* [claims.n] */
};

static int read_register(struct job *j, struct kvf_diag *d)
{
    struct buf b = {.max = MOST_BYTES};
    char part[4096];
    if (!j->file)
        return claims_parse((const char *)claims_embedded, claims_embedded_size, &j->claims, d);
    FILE *f = fopen(j->file, "rb");
    if (!f)
        return kvf_fail(d, KVF_E_IO, "%s: cannot be opened", j->file);
    for (size_t n = 1; n && !b.err; buf_add(&b, part, n))
        n = fread(part, 1, sizeof part, f);
    int err = ferror(f) ? kvf_fail(d, KVF_E_IO, "cannot be read") : b.err;
    fclose(f);
    if (err == KVF_E_LIMIT)
        kvf_fail(d, err, "a register has at most %d bytes", MOST_BYTES);
    if (!err)
        err = claims_parse(b.data ? b.data : "", b.len, &j->claims, d);
    if (err)
        kvf_diag_prefix(d, "%s", j->file);
    buf_finish(&b);
    return err;
}

/* Exit status of --check: every line that is wrong is printed. */
static int check(const struct job *j)
{
    struct buf wrong = {0};
    int untestable = 0;
    for (int i = 0; i < j->claims.n; i++) {
        claims_check(&j->claims.claim[i], &wrong);
        untestable += j->claims.claim[i].untestable != NULL;
    }
    if (wrong.len)
        fprintf(stderr, "%s", wrong.data);
    printf("%d claims: %d to be judged, %d untestable here\n", j->claims.n,
           j->claims.n - untestable, untestable);
    int status = wrong.len || wrong.err ? EXIT_FAILED : EXIT_OK;
    buf_finish(&wrong);
    return status;
}

/* ---- the table */

struct columns {
    const char **text;
    double *real;
    int64_t *whole;
};

enum text_column {
    ID,
    PAPER,
    WHERE,
    VERDICT,
    BY_NUMBER,
    TABLE,
    THAN,
    NULL_CHECK,
    CONTROL,
    FIXED,
    WHY,
    CLAIM,
    TEXTS
};
static const char *const text_names[TEXTS] = {"id",        "paper", "where", "verdict",
                                              "by_number", "table", "than",  "null_check",
                                              "control",   "fixed", "why",   "claim"};

static const char *text_of(const struct job *j, int i, enum text_column which)
{
    const struct claim *c = &j->claims.claim[i];
    const struct claim_result *r = &j->result[i];
    switch (which) {
    case ID:
        return c->id;
    case PAPER:
        return c->paper;
    case WHERE:
        return c->where;
    case VERDICT:
        return claim_verdict_names[r->verdict];
    case BY_NUMBER:
        return claim_verdict_names[r->by_number];
    case TABLE:
        return c->untestable ? "" : c->of.table;
    case THAN:
        return c->untestable ? "" : claim_than_names[c->than];
    case NULL_CHECK:
        return r->null_check;
    case CONTROL:
        return r->control;
    case FIXED:
        return c->fixed;
    case WHY:
        return r->why;
    default:
        return c->text;
    }
}

static void put_texts(const struct job *j, struct columns *x, struct table *t, int from, int to)
{
    for (int k = from; k < to; k++) {
        for (int i = 0; i < j->claims.n; i++)
            x->text[i] = text_of(j, i, (enum text_column)k);
        table_dense_str(t, text_names[k], "", x->text);
    }
}

static void put_numbers(const struct job *j, struct columns *x, struct table *t)
{
    static const char *const names[] = {
        "value", "low",        "high",       "null",           "null_high",       "p",
        "q",     "null_value", "difference", "difference_low", "difference_high", "difference_p",
        "i2"};
    static const char *const counts[] = {"units",    "least_n",          "documents",
                                         "left_out", "difference_units", "on_side"};
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        for (int i = 0; i < j->claims.n; i++) {
            const struct claim_result *r = &j->result[i];
            const struct claim *c = &j->claims.claim[i];
            const struct claim_difference *d = &r->difference;
            const double v[] = {r->value,      r->low,   r->high, c->null, c->null_high, r->p, r->q,
                                r->null_value, d->value, d->low,  d->high, d->p,         r->i2};
            x->real[i] = v[k];
        }
        table_dense_real(t, names[k], "", x->real);
    }
    for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
        for (int i = 0; i < j->claims.n; i++) {
            const struct claim_result *r = &j->result[i];
            const int64_t v[] = {r->units,    j->claims.claim[i].least_n, r->documents,
                                 r->left_out, r->difference.units,        r->on_side};
            x->whole[i] = v[k];
        }
        table_dense_int(t, counts[k], "", x->whole);
    }
}

static struct table *build(const struct job *j)
{
    size_t n = (size_t)j->claims.n;
    struct columns x = {MEM_NEW(const char *, n), MEM_NEW(double, n), MEM_NEW(int64_t, n)};
    struct table *t = x.text && x.real && x.whole ? table_create("claims", (int64_t)n) : NULL;
    if (t) {
        put_texts(j, &x, t, ID, NULL_CHECK);
        put_numbers(j, &x, t);
        put_texts(j, &x, t, NULL_CHECK, TEXTS);
        table_meta_num(t, "replicates", CLAIM_REPLICATES);
        table_meta_str(
            t, "interval",
            "95 %, of the table, Student's t, BCa or Wilson's; q by Benjamini and Hochberg");
    }
    mem_free((void *)x.text);
    mem_free(x.real);
    mem_free(x.whole);
    return t;
}

/* ---- simulated coverage */

static int put_coverage(const struct job *j, struct columns *x, struct table *t)
{
    for (int i = 0; i < j->claims.n; i++)
        x->text[i] = j->claims.claim[i].id;
    table_dense_str(t, "id", "", x->text);
    for (int i = 0; i < j->claims.n; i++)
        x->whole[i] = j->result[i].units;
    table_dense_int(t, "units", "", x->whole);
    for (int law = 0; law < CLAIM_LAWS; law++) {
        for (int i = 0; i < j->claims.n; i++) {
            int err = claims_coverage(&j->claims.claim[i], j->result[i].units, (enum claim_law)law,
                                      &x->real[i]);
            if (err)
                return err;
        }
        table_dense_real(t, claim_law_names[law], "", x->real);
    }
    return KVF_OK;
}

static struct table *build_coverage(const struct job *j)
{
    size_t n = (size_t)j->claims.n;
    struct columns x = {MEM_NEW(const char *, n), MEM_NEW(double, n), MEM_NEW(int64_t, n)};
    struct table *t = x.text && x.real && x.whole ? table_create("coverage", (int64_t)n) : NULL;
    if (t && put_coverage(j, &x, t) != KVF_OK) {
        table_destroy(t);
        t = NULL;
    }
    mem_free((void *)x.text);
    mem_free(x.real);
    mem_free(x.whole);
    return t;
}

/* ---- for people */

static void print_claim(const struct claim *c, const struct claim_result *r)
{
    printf("%-16s %s (%s, %s)\n", claim_verdict_names[r->verdict], c->id, c->paper, c->where);
    printf("    %s\n", c->text);
    if (!isnan(r->value)) {
        printf("    %.4g", r->value);
        if (!isnan(r->low))
            printf(" (%.4g .. %.4g)", r->low, r->high);
        if (c->than == CLAIM_BETWEEN)
            printf(", claimed from %g to %g", c->null, c->null_high);
        else
            printf(", claimed %s %g", claim_than_names[c->than], c->null);
        if (!isnan(r->p))
            printf(", p %.2g", r->p);
        if (!isnan(r->q))
            printf(", q %.2g", r->q);
        if (r->documents >= 0)
            printf(", %" PRId64 " documents", r->documents);
        if (r->units > 1)
            printf(", %" PRId64 " %s", r->units, r->by_cluster ? "clusters" : "units");
        if (r->left_out)
            printf(", %" PRId64 " left out", r->left_out);
        printf("\n");
    }
    if (r->why[0])
        printf("    %s\n", r->why);
    if (isnan(r->value))
        return;
    const struct claim_difference *d = &r->difference;
    printf("    null data: %s", r->null_check);
    if (!isnan(d->value)) {
        printf(", %.4g; difference %+.4g", r->null_value, d->value);
        if (!isnan(d->low))
            printf(" (%+.4g .. %+.4g), p %.2g", d->low, d->high, d->p);
        if (d->units)
            printf(", %" PRId64 " pairs", d->units);
    }
    printf("; matched control: %s\n", r->control);
    if (r->on_side >= 0 && r->units > 1) {
        printf("    %" PRId64 " of %" PRId64 " %s on the claimed side", r->on_side, r->units,
               r->by_cluster ? c->cluster : "units");
        if (!isnan(r->i2))
            printf(", I^2 %.2f", r->i2);
        printf("\n");
    }
}

static void summary(const struct job *j)
{
    int n[CLAIM_VERDICTS] = {0};
    for (int i = 0; i < j->claims.n; i++) {
        print_claim(&j->claims.claim[i], &j->result[i]);
        n[j->result[i].verdict]++;
    }
    for (int k = 0; k < CLAIM_VERDICTS; k++)
        printf("%s%d %s", k ? ", " : "", n[k], claim_verdict_names[k]);
    printf("\n");
}

static int judge(struct job *j, const char *folder, struct kvf_diag *d)
{
    struct claims_folder *f = claims_folder_create(folder, figure_reads_text);
    j->result = MEM_NEW(struct claim_result, (size_t)j->claims.n);
    int err = f && j->result ? claims_judge_all(&j->claims, f, j->result, d) : KVF_E_NOMEM;
    claims_folder_destroy(f);
    return err;
}

static bool is_folder(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static int evaluate(struct job *j, const char *folder, struct kvf_diag *d)
{
    const struct output o = {j->coverage && !j->out && !j->json ? "-" : j->out, j->json, &j->look,
                             NULL};
    struct table *t = NULL;
    int err = figure_options_check(&j->look, j->out, j->json, d);
    if (!err)
        err = output_check(j->out, "claims", d);
    if (!err)
        err = is_folder(folder) ? judge(j, folder, d)
                                : kvf_fail(d, KVF_E_IO, "%s is no folder", folder);
    if (!err) {
        t = j->coverage ? build_coverage(j) : build(j);
        err = t ? KVF_OK : KVF_E_NOMEM;
    }
    if (!err)
        err = output_table(&o, t, d);
    if (!err && output_summary(&o) && !j->coverage)
        summary(j);
    table_destroy(t);
    return err;
}

static const struct opt options[] = {
    {OPT_STR, 'o', "output", offsetof(struct job, out), "OUT",
     "tsv, csv, json, npz, sqlite, png, svg or pdf by extension; - = TSV"},
    {OPT_FLAG, 0, "json", offsetof(struct job, json), NULL,
     "the table as JSON on the standard output"},
    {OPT_STR, 0, "register", offsetof(struct job, file), "FILE", "a register as JSON",
     .absent = "the papers' claims"},
    {OPT_FLAG, 0, "check", offsetof(struct job, check), NULL,
     "whether the register's tables and columns exist"},
    {OPT_FLAG, 0, "coverage", offsetof(struct job, coverage), NULL,
     "how often each interval covers the truth in simulations at its n"},
    {OPT_GROUP, 0, "figure", offsetof(struct job, look), .group = figure_options},
    {.type = OPT_END},
};

static int cmd_claims(const struct command *self, void *request, int n, char **operand)
{
    struct job *j = request;
    struct kvf_diag d = {""};
    int err = KVF_OK, status = EXIT_OK;
    if (n == j->check)
        err = kvf_fail(
            &d, KVF_E_ARG,
            j->check
                ? "--check takes no folder"
                : "a folder of tables is missing; usage: kvfate claims RESULTS_FOLDER [options]");
    if (!err)
        err = read_register(j, &d);
    if (!err && j->check)
        status = check(j);
    else if (!err)
        err = evaluate(j, operand[0], &d);
    mem_free(j->result);
    claims_free(&j->claims);
    return err ? command_end(self, err, &d) : status;
}

static const struct exit_status exits[] = {
    {"0", "The claims were judged, whatever the verdicts."},
    {"1", "It failed: a table or the register cannot be read, or --check found something wrong."},
    {NULL, NULL},
};

const struct command command_claims = {
    .name = "claims",
    .group = "analyses",
    .summary = "what tables say of the claims of the papers",
    .example = "kvfate claims results",
    .operands = {"RESULTS_FOLDER", "folder", 0, 1},
    .options = options,
    .request_bytes = sizeof(struct job),
    .exits = exits,
    .run = cmd_claims,
};
