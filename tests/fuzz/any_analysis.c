/* any_analysis.c - turns fuzz bytes into an analysis and its options; see any_analysis.h. */
#include "any_analysis.h"

#include "base/opt.h"
#include "fuzz.h"

struct any_open any_open(struct source *s)
{
    struct any_open o = {NULL, -1};
    struct kvf_diag d = {""};
    char path[64];
    size_t n;
    const unsigned char *p = any_trace(s, &n);
    o.fd = memory_file(p, n, path);
    int err = kvf_open(path, n % 3 ? KVF_OPEN_TAIL : KVF_OPEN_SALVAGE, &o.t, &d);
    MUST(err == KVF_OK ? o.t != NULL : !o.t && d.text[0]);
    if (o.t && kvf_check_size(o.t, &d) != KVF_OK) { /* commands also stop here */
        kvf_close(o.t);
        o.t = NULL;
    }
    return o;
}

void any_close(struct any_open *o)
{
    kvf_close(o->t);
    close(o->fd);
}

static int n_analyzers(void)
{
    int n = 0;
    while (analyzer_table[n])
        n++;
    return n;
}

/* Writes a value for an option, usually of its type. */
static void take_value(struct source *s, const struct opt *o, char out[32])
{
    static const char *const texts[] = {
        "all",       "top64",        "mass.90", "mass.95", "top64,mass.95",
        "1,5,10",    "end",          "3",       "0",       "16",
        "1,2,4,8",   "in",           "span",    "plan",    "topk:64",
        "mass:0.9",  "slack:1",      "evicted", "kmeans",  "auto",
        "mass.sum",  "nll",          "-1",      "1e9",     "answer",
        "nan",       "number=[0-9]", "",        "a=(",     "digits=^[0-9]+$;x=y",
        "contrib64", "0.5,0.9",
    };
    size_t n;
    unsigned b = (unsigned)take(s, 1);
    int words = 0;
    while (o->type == OPT_WORD && o->words[words])
        words++;
    if (words && b < 250) {
        snprintf(out, 32, "%s", o->words[b % (unsigned)words]);
    } else if (o->type == OPT_FLAG) {
        snprintf(out, 32, "%s", b & 1 ? "yes" : "no");
    } else if ((o->type == OPT_INT || o->type == OPT_REAL) && b < 250) {
        uint64_t v = take(s, b % 4 + 1) >> b % 8;
        snprintf(out, 32, o->type == OPT_INT ? "%.0f" : "%g",
                 o->type == OPT_INT ? (double)v : (double)v / 256);
    } else if (b < 200) {
        snprintf(out, 32, "%s", texts[b % 32]);
    } else {
        const char *any = take_text(s, b % 31, &n);
        memcpy(out, any, n);
        out[n] = 0;
    }
}

static int set_options(struct source *s, struct any_analysis *x, struct kvf_diag *d)
{
    int n = 0;
    struct opt_walk w = opt_walk(x->a->options);
    while (opt_next(&w))
        n++;
    int err = opt_defaults(x->a->options, &x->options, d);
    MUST(err == KVF_OK);
    for (int k = (int)(take(s, 1) % 4); !err && n && k > 0; k--) {
        int i = (int)(take(s, 1) % (unsigned)n);
        const struct opt *o;
        w = opt_walk(x->a->options);
        for (o = opt_next(&w); i > 0; i--)
            o = opt_next(&w);
        take_value(s, o, x->text[k]);
        err = opt_set(x->a->options, &x->options, o->name, x->text[k], d);
    }
    return err;
}

bool any_analysis(struct source *s, struct any_analysis *x)
{
    static const char *const heads[] = {NULL,   NULL,  NULL,   NULL,     "L0K*",        "L0H0",
                                        "L*H*", "0.0", "L1K0", "L0-2K1", "L0H0-1,L1H0", "L9K9"};
    struct kvf_diag d = {""};
    *x = (struct any_analysis){.args = {.token1 = -1, .threads = 1}};
    x->a = analyzer_table[take(s, 1) % (unsigned)n_analyzers()];
    unsigned b = (unsigned)take(s, 1);
    x->args.heads = heads[b % 12];
    if (b >= 128) {
        x->args.token0 = (int64_t)take(s, 1) % 48;
        x->args.token1 = b >= 192 ? (int64_t)take(s, 1) % 48 : -1;
    }
    x->args.options = &x->options;
    int err = x->a->options ? set_options(s, x, &d) : KVF_OK;
    MUST(err == KVF_OK || (err == KVF_E_ARG && d.text[0]));
    return err == KVF_OK;
}

struct table *any_run(const struct any_analysis *x, struct kvf_trace *t, struct kvf_diag *d)
{
    struct kvf_trace *const traces[2] = {t, t};
    struct table *table = NULL;
    d->text[0] = 0;
    int n = x->a->min_traces > 1 || (x->a->max_traces > 1 && x->args.token0 % 2) ? 2 : 1;
    int err = analyzer_run(x->a, traces, n, &x->args, &table, d);
    MUST(err == KVF_OK ? table != NULL : !table && (d->text[0] || err == KVF_E_NOMEM));
    MUST(err != KVF_E_NOMEM);
    return table;
}
