/* corpus_out.c - writes, draws and summarises the table of a corpus. */
#include <stdio.h>
#include <string.h>

#include "base/stats.h"
#include "base/table_io.h"
#include "cli/corpus_out.h"
#include "cli/output.h"
#include "cli/preview.h"
#include "cli/shown.h"
#include "render/figure.h"

static bool to_stdout(const char *out)
{
    return strcmp(out, "-") == 0;
}

static const struct figure *figure_of(const struct analyzer *a, const struct corpus_target *t)
{
    return t->figure ? figure_find(t->figure) : figure_of_table(a->name);
}

int corpus_out_check(const struct analyzer *a, struct corpus_target *t, struct kvf_diag *d)
{
    const struct figure *f = figure_of(a, t);
    int err = figure_options_check(&t->look, t->out, t->json, d);
    if (!err)
        err = preview_check(&t->look, f, d);
    if (err)
        return err;
    if (t->figure)
        err = figure_named("--figure: ", t->figure, a->name, &f, d);
    if (err)
        return err;
    if (!t->out || to_stdout(t->out) || table_format_of(t->out) != TABLE_FORMAT_NONE)
        return KVF_OK;
    if (!figure_can_write(t->out))
        return kvf_fail(d, KVF_E_ARG,
                        "-o %s: the name must end in .tsv, .csv, .json, .npz, .sqlite, .png, "
                        ".svg or .pdf",
                        t->out);
    if (!f)
        return kvf_fail(d, KVF_E_ARG,
                        "-o %s: %s has no figure; write it as .tsv, .csv, .json or "
                        ".npz",
                        t->out, a->name);
    return KVF_OK;
}

/* Prints a note if the traces have different models, methods, budgets or other settings, since sums
 * over them are seldom intended. Budgets of one fraction differ with the lengths of texts. */
static void warn(const struct corpus *c)
{
    static const char *const keys[] = {"model_hash", "method",    "budget",
                                       "protocol",   "overrides", "gates"};
    static const char *const names[] = {"model",    "method",    "budget",
                                        "protocol", "overrides", "gates"};
    const char *gap = "";
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (corpus_differ(c, keys[i])
            && !(strcmp(keys[i], "budget") == 0 && corpus_share(c, "budget_percent"))) {
            fprintf(stderr, "%s%s", *gap ? gap : "note: the traces differ in ", names[i]);
            gap = ", ";
        }
    if (*gap)
        fputc('\n', stderr);
}

/* Prints notes on the table: too few documents for a CI, texts of different lengths, and the note
 * in the table itself. */
static void note(const struct corpus *c, const struct table *t)
{
    long long n = corpus_counted(c).counted, least = table_meta_int(t, "T_least", 0);
    const char *own = table_meta(t, "note");
    if (n < STATS_LEAST)
        fprintf(stderr, "note: %lld document%s: an interval needs %d or more\n", n,
                n == 1 ? "" : "s", STATS_LEAST);
    if (10 * least < 9 * table_meta_int(t, "T", 0))
        fprintf(stderr,
                "note: the texts have %lld to %s tokens, so late rows are of fewer documents: see "
                "the column documents\n",
                least, table_meta(t, "T"));
    if (own)
        fprintf(stderr, "note: %s\n", own);
}

/* Prints the text. Returns its error, if any. */
static int show(const struct buf *text)
{
    if (!text->err)
        shown_print(text->data, text->len);
    return text->err;
}

int corpus_out(struct corpus *c, const struct corpus_target *to, struct kvf_diag *d)
{
    struct table *t = NULL;
    struct buf b = {0};
    const struct figure *f = figure_of(corpus_analyzer(c), to);
    bool drawn = !to->json && preview_wanted(&to->look, f, to->out);
    bool screen = to->json || (to->out && to_stdout(to->out) && !drawn);
    int err = corpus_table(c, &t, d);
    warn(c);
    if (!err)
        note(c, t);
    if (!err && screen)
        err = output_write(t, to->json ? TABLE_JSON : TABLE_TSV, "-", d);
    else if (!err && drawn)
        err = preview_draw(&to->look, f, t, d);
    if (!err && !screen && to->out && !to_stdout(to->out) && figure_can_write(to->out))
        err = figure_options_write(&to->look, f, t, to->out, d);
    else if (!err && !screen && to->out && !to_stdout(to->out))
        err = output_write(t, table_format_of(to->out), to->out, d);
    if (!err && !drawn && !(to->out && figure_can_write(to->out)))
        err = figure_options_idle(&to->look, f, t, d);
    if (!err && !screen && !drawn) {
        corpus_describe(c, t, &b);
        err = show(&b);
    }
    buf_finish(&b);
    table_destroy(t);
    return err;
}

int pairs_out(struct corpus_pairs *pairs, const struct corpus_target *to, struct kvf_diag *d)
{
    struct table *t = NULL;
    struct buf b = {0};
    bool screen = to->json || (to->out && to_stdout(to->out));
    int err = pairs_table(pairs, &t);
    if (!err && screen)
        err = output_write(t, to->json ? TABLE_JSON : TABLE_TSV, "-", d);
    else if (!err && to->out)
        err = output_write(t, table_format_of(to->out), to->out, d);
    if (!err && !screen) {
        pairs_describe(t, &b);
        err = show(&b);
    }
    buf_finish(&b);
    table_destroy(t);
    return err;
}
