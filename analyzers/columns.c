/* columns.c - finds columns and names the source of missing ones (columns.h). */
#include "analyzers/columns.h"
#include "libtrace/run_header.h"

#include <string.h>

/* In the order of <kvf/schema.h>; of two that fit a name the first counts. */
#define ROWS "attention"
static const struct column_supply supplies[] = {
    {"tokens.role", "--probes lean", "tokens.role or --prompt"},
    {"tokens.*", "--probes lean", NULL},
    {"nll", "--probes nll", NULL},
    {"evict_step", "--probes evict", "evict_step or kept"},
    {"evict_*", "--probes evict", NULL},
    {"log_beta", "--method trimkv --gates FILE", "log_beta or retention"},
    {"write_gate", "--method wgkv --gates FILE", NULL},
    {"importance", "--method locret --gates FILE", NULL},
    {"key_norm", "--probes keys", NULL},
    {"saliency", NULL, NULL},
    {"read.count", "--method quest", NULL},
    {"last_selected.contrib64", "--probes contrib", NULL},
    {"last_selected.*", "--probes survival", ROWS},
    {"selected_at.*", "--probes calibration", ROWS},
    {"first_unselected.*", "--probes calibration", ROWS},
    {"n_selected.*", "--probes returns", ROWS},
    {"n_returns.*", "--probes returns", ROWS},
    {"longest_gap.*", "--probes returns", ROWS},
    {"out_norm", "--probes contrib", NULL},
    {"mass.*", "--probes mass", ROWS},
    {"window*", "--probes window", ROWS},
    {"under.*", "--probes under", ROWS},
    {"entropy", "--probes steps", ROWS},
    {"lse", "--probes steps", NULL},
    {"copy.*", "--probes copies", NULL},
    {"received.*", "--watch TOKENS@HEADS", NULL},
    {"query.*", "--watch-queries HEADS", NULL},
    {"useful.plan", "--probes dilution --plan PLAN.kvf", NULL},
    {"useful.span*", "--probes dilution --spans FILE.json", NULL},
    {"dilution.span*", "--probes dilution --spans FILE.json", NULL},
    {"size.span*", "--probes dilution --spans FILE.json", NULL},
    {"near.span*", "--probes dilution --spans FILE.json", NULL},
    {"useful.*", "--probes dilution", ROWS},
    {"dilution.*", "--probes dilution", ROWS},
    {"size.*", "--probes dilution", ROWS},
    {"near.*", "--probes dilution", ROWS},
    {"beta.*", "--probes dilution --method trimkv -B T", NULL},
    {"kept.*", "--probes dilution", NULL},
    {"rho_u.*", "--probes dilution", NULL},
    {"rho_d.*", "--probes dilution", NULL},
    {"shadow.nll", "--shadow model", NULL},
    {"shadow.kl", "--shadow model", NULL},
    {"shadow.residual_error.*", "--shadow model", NULL},
    {"shadow.*", "--shadow entries", NULL},
};

const struct column_supply *column_supply_at(int i)
{
    static const struct column_supply none = {NULL, NULL, NULL};
    return i >= 0 && i < (int)(sizeof supplies / sizeof *supplies) ? &supplies[i] : &none;
}

const struct column_supply *column_supply(const char *name)
{
    for (size_t i = 0; i < sizeof supplies / sizeof *supplies; i++) {
        const char *known = supplies[i].name;
        size_t n = strlen(known) - 1;
        if (known[n] == '*' ? strncmp(known, name, n) == 0 : strcmp(known, name) == 0)
            return &supplies[i];
    }
    return column_supply_at(-1);
}

static bool same(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

/* Returns whether kvfate.capture made the trace.  It only words the remedy of an error: a header
 * that cannot be read counts as no. */
static bool was_captured(const struct kvf_trace *t)
{
    struct json *root = NULL;
    if (run_header(t, &root, NULL) != KVF_OK)
        return false;
    bool yes = json_get(json_get(root, "run"), "captured") != NULL;
    json_free(root);
    return yes;
}

/* Returns the option of kvfate.capture that corresponds to the flag of `kvfate run`; false:
 * none. */
static bool put_capture(struct buf *b, const char *flag)
{
    const char *option = "probes", *value = NULL;
    if (strcmp(flag, "--shadow entries") == 0) {
        value = "shadow";
    } else if (strncmp(flag, "--watch ", 8) == 0) {
        option = "watch";
        value = flag + 8;
    } else if (strncmp(flag, "--probes ", 9) == 0 && !strchr(flag + 9, ' ')) {
        value = flag + 9;
    }
    if (value)
        buf_printf(b, "kvfate.capture with %s=\"%s\", or ", option, value);
    return value != NULL;
}

/* " (kvfate run --probes mass, or kvfate import of attention)" */
static void put_supply(struct buf *b, const struct column_supply *s, bool captured)
{
    buf_str(b, " (");
    if (s->flag && !(captured && put_capture(b, s->flag)))
        buf_printf(b, "kvfate run %s, or ", s->flag);
    buf_str(b, "kvfate trace import");
    buf_printf(b, "%s%s)", s->import ? " of " : "", s->import ? s->import : "");
}

void lacks_add(struct lacks *l, const struct kvf_trace *t, const char *name)
{
    const struct column_supply *s = column_supply(name);
    if (l->n == 0) {
        l->t = t;
        l->captured = was_captured(t);
    }
    if (l->last && !(same(l->last->flag, s->flag) && same(l->last->import, s->import)))
        put_supply(&l->text, l->last, l->captured);
    buf_printf(&l->text, "%s%s", l->n ? ", " : "", name);
    l->last = s;
    l->n++;
}

const char *lacks_text(struct lacks *l)
{
    if (l->last)
        put_supply(&l->text, l->last, l->captured);
    l->last = NULL;
    return l->text.err ? NULL : l->text.data;
}

void lacks_note(struct lacks *l, struct table *out)
{
    const char *text = l->n ? lacks_text(l) : NULL;
    if (text)
        table_meta_str(out, "missing", text);
}

void lacks_free(struct lacks *l)
{
    buf_finish(&l->text);
    *l = (struct lacks){0};
}

int columns_find(const struct kvf_trace *t, const char *name, enum kvf_space space,
                 enum kvf_axis axis, struct lacks *l, int *ret, struct kvf_diag *d)
{
    static const char *const spaces[] = {"", "KV head and ", "query head and "};
    static const char *const axes[] = {"token", "step"};
    int column = kvf_find(t, name);
    const struct kvf_column *has = column < 0 ? NULL : kvf_column(t, column);
    if (has && (has->space != space || has->axis != axis))
        return kvf_fail(d, KVF_E_FORMAT, "the column %s must have a value for each %s%s", name,
                        spaces[space], axes[axis]);
    if (!has && l)
        lacks_add(l, t, name);
    *ret = column;
    return KVF_OK;
}

int columns_refuse(struct lacks *l, const char *else_, int err, struct kvf_diag *d)
{
    if (!err && l->n) {
        const char *text = lacks_text(l), *several = l->n > 1 ? "s" : "";
        const char *then = else_ ? "; " : "", *do_ = else_ ? else_ : "";
        err = KVF_E_NOMEM;
        if (text)
            err = kvf_fail(d, KVF_E_NOTFOUND, "%s has no column%s %s%s%s", kvf_path(l->t), several,
                           text, then, do_);
    }
    lacks_free(l);
    return err;
}

int column_need(const struct kvf_trace *t, const char *name, int *ret_column, struct kvf_diag *d)
{
    struct lacks l = {.n = 0};
    int c = kvf_find(t, name);
    if (c < 0)
        lacks_add(&l, t, name);
    else
        *ret_column = c;
    return columns_refuse(&l, NULL, KVF_OK, d);
}
