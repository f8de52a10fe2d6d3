/* cmd_saliency.c - `kvfate ablate --as saliency` computes the gradient saliency of cache entries
 * with one backward pass. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/mem.h"
#include "base/progress.h"
#include "base/table_io.h"
#include "base/utf8.h"
#include "cli/commands.h"
#include "cli/figure_options.h"
#include "base/files.h"
#include "cli/idle.h"
#include "cli/models.h"
#include "cli/output.h"
#include "cli/runner.h"
#include "cli/saliency_beta.h"
#include "cli/open_traces.h"
#include "cli/saliency_of.h"
#include "cli/watcher.h"
#include "engine/device/devices.h"
#include "engine/model/gguf.h"
#include "engine/train/saliency_pass.h"
#include "render/figure.h"

enum { TOP = 10 };

enum { LOSS_NLL, LOSS_KL };
static const char *const loss_words[] = {"nll", "kl", NULL}; /* in the order of the enum */

/* Rank correlations of the saliency with another statistic of the entries. */
struct compared {
    struct saliency_rho *head; /* [SALIENCY_SIDES][heads]; NULL if the statistic is not available */
    struct saliency_rho all[SALIENCY_SIDES];
    double pooled[SALIENCY_SIDES];
};

struct job {
    /* options */
    struct runner r; /* model, prompt and threads */
    const char *of_path, *gates_file, *method, *heads, *weight, *from, *out;
    int loss; /* index into loss_words */
    int64_t window;
    bool by_head, json;
    struct figure_options look;

    struct learner learner;
    struct saliency_options opt;
    struct saliency_of of;
    struct saliency_text text;
    int n; /* number of tokens */
    struct saliency s;
    char gates_hash[33]; /* "" if no gates were evaluated */
    struct compared beta, evict;
    double seconds, cpu;
};

/* ---- before the model is opened */

static bool writes_trace(const char *out)
{
    const char *dot = out ? strrchr(out, '.') : NULL;
    return dot && strcasecmp(dot, ".kvf") == 0;
}

static int check_output_name(const struct job *j, struct kvf_diag *d)
{
    const char *out = j->out;
    if (!out || strcmp(out, "-") == 0 || table_format_of(out) != TABLE_FORMAT_NONE
        || writes_trace(out))
        return KVF_OK;
    if (!figure_can_write(out))
        return kvf_fail(d, KVF_E_ARG,
                        "-o %s: the name must end in .kvf, .tsv, .csv, .json, .npz, "
                        ".png, .svg or .pdf",
                        out);
    if (j->by_head)
        return kvf_fail(d, KVF_E_ARG,
                        "-o %s: --by-head has no figure; write it as .tsv, .csv, "
                        ".json, .npz or .sqlite",
                        out);
    return KVF_OK;
}

/* Parses --weight: "recorded", or the weight of every entry. */
static int parse_weight(struct job *j, struct kvf_diag *d)
{
    const char *w = j->weight;
    j->opt.weight = 1;
    if (w && strcmp(w, "recorded") == 0)
        return j->of_path ? KVF_OK
                          : kvf_fail(d, KVF_E_ARG,
                                     "--weight recorded takes the write gates of a "
                                     "run: give it with --of X.kvf");
    if (w && (!opt_real(w, &j->opt.weight) || !(j->opt.weight >= .001 && j->opt.weight <= 1)))
        return kvf_fail(d, KVF_E_ARG,
                        "--weight is a number from 0.001 to 1, or 'recorded', not "
                        "'%s'",
                        w);
    if (j->opt.kl && j->opt.weight == 1)
        return kvf_fail(d, KVF_E_ARG,
                        "--loss kl needs weights below 1 (--weight G, or --weight recorded with "
                        "--of X.kvf): with full weights the KL to the full cache is at its "
                        "minimum, and all its derivatives are 0");
    return KVF_OK;
}

static int check_options(struct job *j, struct kvf_diag *d)
{
    const struct runner *r = &j->r;
    if (j->of_path && (prompt_named(&r->prompt) || r->prompt.raw))
        return kvf_fail(d, KVF_E_ARG,
                        "--of gives the tokens; leave -p, -f, --chat, --ids and "
                        "--raw out");
    const char *why = "with --of, which gives the tokens";
    const struct idle list[] = {{j->of_path && r->prompt.think, "--think", why},
                                {j->of_path && r->prompt.no_think, "--no-think", why},
                                {j->of_path && r->prompt.date, "--date", why},
                                {j->method && j->gates_file, "--method", "with --gates"}};
    int err = IDLE_CHECK(list, d);
    if (err)
        return err;
    if (j->heads && writes_trace(j->out))
        return kvf_fail(d, KVF_E_ARG, "-o %s contains every head; leave --head out", j->out);
    if (j->by_head && writes_trace(j->out))
        return kvf_fail(d, KVF_E_ARG, "-o %s contains every entry; leave --by-head out", j->out);
    j->opt.kl = j->loss == LOSS_KL;
    j->opt.window = (int)j->window;
    j->r.n_predict = 0;
    err = model_learner(&j->r.how, &j->learner, d);
    j->opt.precision = err ? NULL : model_learner_word(&j->learner);
    if (!err)
        err = figure_options_check(&j->look, j->out, j->json, d);
    if (!err)
        err = parse_weight(j, d);
    return err ? err : check_output_name(j, d);
}

/* ---- input */

static int open_recorded(struct job *j, struct kvf_diag *d)
{
    int err = model_open(j->r.model, &j->r.how, &j->r.engine, d);
    if (!err)
        err = saliency_of_open(&j->of, j->of_path, j->r.engine, d);
    if (err)
        return err;
    const struct plan *p = j->of.tokens;
    j->text = (struct saliency_text){p->ids, p->roles, p->n_prompt};
    j->n = p->n_tokens;
    if (!j->weight || strcmp(j->weight, "recorded") != 0)
        return KVF_OK;
    j->opt.weights = j->of.write_gate;
    return j->opt.weights ? KVF_OK
                          : kvf_fail(d, KVF_E_NOTFOUND,
                                     "%s has no write gates of KV heads (column write_gate); "
                                     "--weight G takes a number",
                                     j->of_path);
}

/* Finds the first prediction to score. */
static int parse_from(struct job *j, struct kvf_diag *d)
{
    int64_t from = j->text.n_prompt;
    if (!j->from)
        return KVF_OK;
    while (j->text.roles && from < j->n && j->text.roles[from] == KVF_ROLE_QUESTION)
        from++;
    if (strcmp(j->from, "prompt") != 0 && (!opt_int(j->from, &from) || from < 0))
        return kvf_fail(d, KVF_E_ARG,
                        "--from is the first query to count, or 'prompt' for the end of the prompt "
                        "and its question, not '%s'",
                        j->from);
    if (from > j->n - 2)
        return kvf_fail(d, KVF_E_ARG,
                        "--from %s: query %lld predicts no token of the text, which has %d; give "
                        "the tokens of an answer with --of X.kvf",
                        j->from, (long long)from, j->n);
    j->opt.from = (int)from;
    return KVF_OK;
}

/* Checks that a query that predicts a known token sees an entry older than the window. */
static int check_window(const struct job *j, struct kvf_diag *d)
{
    if (j->window <= 1 || j->window <= j->n - 2)
        return KVF_OK;
    return kvf_fail(d, KVF_E_ARG,
                    "--window %lld: no entry of the text is ever older, so that all saliencies "
                    "are 0; give at most %d for its %d tokens",
                    (long long)j->window, j->n > 3 ? j->n - 2 : 1, j->n);
}

static int open_all(struct job *j, struct kvf_diag *d)
{
    int err = file_keep(j->out, j->of_path, d);
    if (!err && writes_trace(j->out))
        err = file_vacant(j->out, j->opt.overwrite, d);
    if (!err)
        err = j->of_path ? open_recorded(j, d) : runner_open(&j->r, d);
    if (err)
        return err;
    if (!j->of_path) {
        j->text = (struct saliency_text){j->r.prompt.ids, NULL, j->r.prompt.n_ids};
        j->n = j->r.prompt.n_ids;
    }
    if (j->n < 2)
        return kvf_fail(d, KVF_E_LIMIT,
                        "a text of one token has no known next token; give at least 2 tokens");
    err = parse_from(j, d);
    if (!err)
        err = check_window(j, d);
    return err || !j->out ? err : runner_output(&j->r, j->out, d);
}

/* ---- measurement */

static int compare(const struct job *j, const double *of, struct compared *ret)
{
    int err = KVF_OK;
    struct watcher w = watcher_count("ranks", "heads");
    const struct progress_callback progress = {watcher_update, &w};
    if (!of)
        return KVF_OK;
    ret->head = MEM_NEW(struct saliency_rho, SALIENCY_SIDES * (size_t)j->s.n);
    if (!ret->head)
        return KVF_E_NOMEM;
    for (int i = 0; !err && i < SALIENCY_SIDES; i++) {
        enum saliency_side side = (enum saliency_side)i;
        err = saliency_rhos(&j->s, side, of, j->r.engine->pool, &progress, ret->head + i * j->s.n,
                            &ret->all[i]);
        if (!err)
            err = saliency_rho_pooled(&j->s, side, of, &ret->pooled[i]);
    }
    watcher_end(&w);
    return err;
}

/* Uses gate values from --gates instead of recorded ones. */
static int evaluate_gates(struct job *j, struct kvf_diag *d)
{
    double *beta = NULL;
    if (!j->gates_file && !j->method)
        return KVF_OK;
    int err = saliency_beta(j->r.engine, j->gates_file, j->method, j->text.ids, j->n, &beta,
                            j->gates_hash, d);
    if (err)
        return err;
    mem_free(j->of.log_beta);
    j->of.log_beta = beta;
    return KVF_OK;
}

static void select_rows(double *v, const unsigned char *take, int heads, size_t T)
{
    size_t n = 0;
    for (int k = 0; v && k < heads; k++)
        if (take[k])
            memmove(v + n++ * T, v + (size_t)k * T, T * sizeof *v);
}

/* Keeps only the heads of --head. */
static int select_heads(struct job *j, const unsigned char *take)
{
    if (take) {
        saliency_select(&j->s, take);
        select_rows(j->of.log_beta, take, j->s.L * j->s.H, (size_t)j->n);
        select_rows(j->of.evict_step, take, j->s.L * j->s.H, (size_t)j->n);
    }
    int err = compare(j, j->of.log_beta, &j->beta);
    return err ? err : compare(j, j->of.evict_step, &j->evict);
}

static int measure(struct job *j, struct kvf_diag *d)
{
    const struct model_config *m = &j->r.engine->config;
    unsigned char *take = NULL;
    int err = j->heads ? model_heads(m, j->heads, &take, d) : KVF_OK;
    if (!err)
        err = evaluate_gates(j, d);
    struct watcher w = watcher_count("saliency", "layers");
    j->opt.watch = watcher_update;
    j->opt.watch_ctx = &w;
    clock_t c0 = clock();
    double t0 = clock_seconds();
    if (!err)
        err = saliency_measure(j->r.engine, &j->learner, j->text.ids, j->n, &j->opt, &j->s, d);
    watcher_end(&w);
    j->seconds = clock_seconds() - t0;
    j->cpu = (double)(clock() - c0) / CLOCKS_PER_SEC;
    if (!err)
        err = select_heads(j, take);
    mem_free(take);
    return err;
}

/* ---- output */

static void meta_rhos(struct table *t, const char *name, const struct compared *of)
{
    static const char *const end[] = {"", "_low", "_high", "_pooled"};
    char key[64];
    for (int side = 0; of->head && side < SALIENCY_SIDES; side++) {
        const struct saliency_rho *x = &of->all[side];
        const double v[] = {x->rho, x->low, x->high, of->pooled[side]};
        for (int c = 0; c < 4; c++) {
            snprintf(key, sizeof key, "%srho_%s%s", side == SALIENCY_SIZE ? "abs_" : "", name,
                     end[c]);
            table_meta_num(t, key, v[c]);
        }
    }
}

static void add_meta(const struct job *j, struct table *t)
{
    table_meta_str(t, "model", j->r.engine->config.name);
    table_meta_str(t, "model_hash", j->r.engine->hash);
    table_meta_num(t, "T", j->n);
    table_meta_num(t, "prompt_tokens", j->text.n_prompt);
    table_meta_str(t, "loss", loss_words[j->loss]);
    table_meta_num(t, "loss_nats", j->s.loss);
    table_meta_num(t, "predictions", (double)j->s.positions);
    table_meta_num(t, "from", j->s.from);
    table_meta_num(t, "window", j->s.window);
    table_meta_str(t, "weight", j->weight ? j->weight : "1");
    table_meta_str(t, "precision", j->opt.precision ? j->opt.precision : "f32");
    if (j->of_path)
        table_meta_str(t, "method", j->of.tokens->method);
    if (j->heads)
        table_meta_str(t, "heads", j->heads);
    if (j->gates_hash[0])
        table_meta_str(t, "gates", j->gates_hash);
    meta_rhos(t, "log_beta", &j->beta);
    meta_rhos(t, "evict_step", &j->evict);
}

static void print_rho(const char *what, const struct compared *of)
{
    static const char *const side[] = {"saliency", "|saliency|"};
    for (int i = 0; of->head && i < SALIENCY_SIDES; i++) {
        const struct saliency_rho *r = &of->all[i];
        if (isnan(r->rho))
            printf("rank correlation of %s with %s: not defined, one does not vary\n", side[i],
                   what);
        else
            printf("rank correlation of %-10s with %s: %+.3f, mean over heads (95 %% over layers "
                   "%+.3f .. %+.3f); %+.3f of all entries as one\n",
                   side[i], what, r->rho, r->low, r->high, of->pooled[i]);
    }
}

struct place {
    double size;
    int64_t row;
};

static int by_size(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    return x->size != y->size ? (x->size < y->size) - (x->size > y->size)
                              : (x->row > y->row) - (x->row < y->row);
}

/* Returns the rows of a table sorted by the absolute value of a column, largest first; NULL if
 * memory is exhausted. */
static struct place *sort_rows(const struct table *t, const char *column)
{
    int64_t n = table_rows(t);
    struct place *p = MEM_NEW(struct place, (size_t)n);
    for (int64_t i = 0; p && i < n; i++)
        p[i] = (struct place){fabs(table_real(t, table_find(t, column), i)), i};
    if (p)
        qsort(p, (size_t)n, sizeof *p, by_size);
    return p;
}

static void print_entry(const struct job *j, const struct table *t, int64_t row)
{
    int64_t token = table_int(t, table_find(t, "token"), row);
    struct buf text = {0};
    size_t len;
    const char *bytes = tokenizer_bytes(j->r.engine->tokenizer, j->text.ids[token], &len);
    utf8_show(&text, bytes, len);
    buf_char(&text, 0);
    printf("%-8s %7lld  %+12.6f  %s\n", table_str(t, table_find(t, "head"), row), (long long)token,
           table_real(t, table_find(t, "saliency"), row), text.err ? "" : text.data);
    buf_finish(&text);
}

static int print_entries(const struct job *j, const struct table *t)
{
    struct place *p = sort_rows(t, "saliency");
    if (!p)
        return KVF_E_NOMEM;
    printf("\n%-8s %7s  %12s  %s\n", "head", "token", "saliency", "text");
    for (int i = 0; i < TOP && i < table_rows(t); i++)
        print_entry(j, t, p[i].row);
    mem_free(p);
    return KVF_OK;
}

static void print_rhos(const struct table *t, const char *name, int64_t row)
{
    char low[32], high[32];
    snprintf(low, sizeof low, "%s_low", name);
    snprintf(high, sizeof high, "%s_high", name);
    if (table_find(t, name) >= 0)
        printf("  %+.3f (%+.3f .. %+.3f)", table_real(t, table_find(t, name), row),
               table_real(t, table_find(t, low), row), table_real(t, table_find(t, high), row));
}

static int print_heads(const struct job *j, const struct table *t)
{
    struct place *p = sort_rows(t, "abs_sum");
    if (!p)
        return KVF_E_NOMEM;
    printf("\n%-8s %12s  %12s  %8s%s%s\n", "head", "sum |.|", "sum", "positive",
           j->beta.head ? "  rho with log_beta       " : "",
           j->evict.head ? "  rho with evict_step" : "");
    for (int i = 0; i < TOP && i < table_rows(t); i++) {
        int64_t row = p[i].row;
        printf("%-8s %12.6f  %+12.6f  %7.1f%%", table_str(t, table_find(t, "head"), row),
               table_real(t, table_find(t, "abs_sum"), row),
               table_real(t, table_find(t, "sum"), row),
               100 * table_real(t, table_find(t, "positive"), row));
        print_rhos(t, "rho_log_beta", row);
        print_rhos(t, "rho_evict_step", row);
        printf("\n");
    }
    if (table_rows(t) > TOP)
        printf("... and %d more\n", (int)table_rows(t) - TOP);
    mem_free(p);
    return KVF_OK;
}

static int summary(const struct job *j, const struct table *entries, const struct table *heads)
{
    printf("%d tokens, %lld predictions, %s %.6f nats in all; saliency: nats per unit of ln "
           "weight, positive = helps\n",
           j->n, (long long)j->s.positions, loss_words[j->loss], j->s.loss);
    printf("queries see their newest %d entr%s at full weight, older ones at weight %s\n",
           j->s.window, j->s.window > 1 ? "ies" : "y", j->weight ? j->weight : "1");
    print_rho("log_beta", &j->beta);
    print_rho("evict_step", &j->evict);
    int err = print_heads(j, heads);
    return err ? err : print_entries(j, entries);
}

/* Adds the column `text`, the token of each entry. */
static void add_text(const struct job *j, struct table *t)
{
    struct buf bytes = {0};
    size_t n = (size_t)j->n, *start = MEM_NEW(size_t, n), len;
    const char **text = MEM_NEW(const char *, n);
    for (size_t i = 0; start && text && i < n; i++) {
        const char *token = tokenizer_bytes(j->r.engine->tokenizer, j->text.ids[i], &len);
        start[i] = bytes.len;
        utf8_show(&bytes, token, len);
        buf_char(&bytes, 0);
    }
    if (start && text && !bytes.err) {
        for (size_t i = 0; i < n; i++)
            text[i] = bytes.data + start[i];
        table_cycle_str(t, "text", "", text, j->n);
    }
    mem_free_all(start, text);
    buf_finish(&bytes);
}

static int deliver(const struct job *j, struct kvf_diag *d)
{
    struct saliency_run run = {j->of.log_beta, j->of.evict_step};
    struct table *entries = saliency_table(&j->s, &run);
    struct table *heads = saliency_table_heads(&j->s, j->beta.head, j->evict.head);
    struct table *t = j->by_head ? heads : entries;
    const struct output o = {writes_trace(j->out) ? NULL : j->out, j->json, &j->look, NULL};
    int err = entries && heads ? KVF_OK : KVF_E_NOMEM;
    if (!err) {
        add_text(j, entries);
        add_meta(j, t);
        err = table_err(t);
    }
    if (!err && writes_trace(j->out))
        err = saliency_write(j->r.engine, &j->s, &j->opt, &j->text, j->out, d);
    if (!err)
        err = output_table(&o, t, d);
    if (!err && output_summary(&o))
        err = summary(j, entries, heads);
    if (!err)
        fprintf(stderr, "one pass, %.1f s, %.1f s of processor time, activations %.1f MiB\n",
                j->seconds, j->cpu, (double)j->s.bytes / (1 << 20));
    table_destroy(entries);
    table_destroy(heads);
    return err;
}

static void finish(struct job *j)
{
    saliency_finish(&j->s);
    saliency_of_close(&j->of);
    runner_close(&j->r);
    mem_free(j->beta.head);
    mem_free(j->evict.head);
}

static const struct opt options[] = {
    {OPT_STR, 0, "of", offsetof(struct job, of_path), "X.kvf",
     "the tokens of a trace, prompt and answer; its entries are compared"},
    {OPT_STR, 0, "gates", offsetof(struct job, gates_file), "FILE",
     "retention gates to compare with, or the name of shipped ones"},
    {OPT_STR, 0, "method", offsetof(struct job, method), "M",
     "compare with the gates shipped for trimkv or dbtrimkv"},
    {OPT_STR, 0, "head", offsetof(struct job, heads), "SET", "KV heads: L0-5K*, L3K1, 3.1",
     .absent = "all"},
    {OPT_WORD, 0, "loss", offsetof(struct job, loss), "LOSS",
     "function to differentiate; kl: to the full cache", "nll", .words = loss_words},
    {OPT_STR, 0, "weight", offsetof(struct job, weight), "G",
     "weight of entries at which to look, or 'recorded' write gates", .absent = "1"},
    {OPT_STR, 0, "from", offsetof(struct job, from), "P",
     "score the predictions of query P and later ones, or of those after the 'prompt'",
     .absent = "0, all predictions"},
    {OPT_INT, 'w', "window", offsetof(struct job, window), "W",
     "newest entries that always weigh 1", "1", .min = 1, .max = 1 << 24},
    {OPT_FLAG, 0, "by-head", offsetof(struct job, by_head), NULL, "a row for every head"},
    {OPT_STR, 'o', "output", offsetof(struct job, out), "OUT",
     "kvf, tsv, csv, json, npz, sqlite, png, svg or pdf by extension; - = TSV"},
    {OPT_FLAG, 0, "overwrite", offsetof(struct job, opt.overwrite), NULL,
     "replace the trace that is there"},
    {OPT_FLAG, 0, "json", offsetof(struct job, json), NULL,
     "the table as JSON on the standard output"},
    {OPT_GROUP, 0, "execution", offsetof(struct job, r.how), .group = learner_options},
    {OPT_GROUP, 0, "prompt", offsetof(struct job, r), .group = runner_prompt_options},
    {OPT_GROUP, 0, "figure", offsetof(struct job, look), .group = figure_options},
    {.type = OPT_END},
};

static int cmd_saliency(const struct command *self, void *request, int n, char **operand)
{
    (void)n;
    (void)operand;
    struct job *j = request;
    struct kvf_diag d = {""};
    int err = check_options(j, &d);
    if (!err)
        err = open_all(j, &d);
    if (!err)
        err = measure(j, &d);
    if (!err)
        err = deliver(j, &d);
    if (!err && j->of.partial)
        trace_report_partial(self->name, j->of_path);
    finish(j);
    return command_end(self, err, &d);
}

static const struct exit_status exits[] = {
    {"1", "It failed: a file could not be read or written, the trace is of another model or lacks "
          "data, or the text is too long for the model or the memory."},
    EXIT_PARTIAL,
    {NULL, NULL},
};

const struct command command_saliency = {
    .name = "saliency",
    .group = "quality",
    .summary = "gradient saliency: which cache entries help or harm the predictions",
    .example = "kvfate ablate --as saliency -p 'Why is the sky blue?' -o saliency.png",
    .needs = "(-p TEXT | -f FILE | --chat FILE | --ids FILE | --of X.kvf)",
    .options = options,
    .request_bytes = sizeof(struct job),
    .exits = exits,
    .run = cmd_saliency,
};
