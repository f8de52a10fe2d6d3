/* settings.c - names the options of a method that make a difference. */
#include <string.h>

#include "base/mem.h"
#include "base/opt.h"
#include "engine/method/state.h"

enum { MOST_PAIRS = 128 };
struct pair {
    char key[64], value[64];
    bool left_out;
};

/* Parses "NAME:key=value,..." without the pairs that are left out.  Returns an error of
 * method_parse_for() or of the buffer. */
static int parse_rest(const char *name, size_t n_name, const struct pair *pair, int n,
                      const struct budget *budget, const struct budget_prompt *prompt,
                      struct method *ret_m, struct method_params *ret_p)
{
    struct kvf_diag unused = {""};
    struct buf text = {0};
    const char *between = ":";
    buf_add(&text, name, n_name);
    for (int i = 0; i < n; i++)
        if (!pair[i].left_out) {
            buf_printf(&text, "%s%s=%s", between, pair[i].key, pair[i].value);
            between = ",";
        }
    int err = text.err;
    if (!err)
        err = method_parse_for(text.data, budget, prompt, ret_m, ret_p, &unused);
    buf_finish(&text);
    return err;
}

/* Returns true if two rows have equal parts, budgets and options. */
static bool same_rows(const struct method *a, const struct method_params *p, const struct method *b,
                      const struct method_params *q)
{
    bool same = a->score == b->score && a->allocation == b->allocation && a->read == b->read
                && p->budget == q->budget && p->part == q->part;
    for (const struct method_option *o = method_options; same && o->key; o++) {
        const char *one = method_option_word(o, p), *other = method_option_word(o, q);
        same = method_option_value(o, p) == method_option_value(o, q)
               && (!one || strcmp(one, other) == 0);
    }
    return same;
}

/* Appends a pair with a key, the last one in the text, unless it is left out. */
static void put_pair(struct buf *out, size_t start, const struct pair *pair, int n, const char *key)
{
    for (int i = n - 1; i >= 0; i--)
        if (!pair[i].left_out && method_same_key(pair[i].key, key)) {
            buf_printf(out, "%s%s=%s", out->len > start ? "," : "", key, pair[i].value);
            return;
        }
}

/* Appends the options of the expanded text "PRESET:key=value,...". */
static int put_options(struct buf *out, const char *text, const struct budget *budget,
                       const struct budget_prompt *prompt)
{
    size_t name = strcspn(text, ":"), start = out->len;
    const char *rest = text + name + 1;
    struct method m, other;
    struct method_params p, q;
    struct pair *pair = MEM_NEW(struct pair, MOST_PAIRS);
    int n = 0, err = pair ? KVF_OK : KVF_E_NOMEM;
    while (!err && n < MOST_PAIRS && opt_pair(&rest, pair[n].key, pair[n].value, 64) == 1)
        n++;
    if (!err && n == MOST_PAIRS && *rest)
        err = KVF_E_LIMIT;
    if (!err)
        err = parse_rest(text, name, pair, n, budget, prompt, &m, &p);
    for (int i = 0; !err && i < n; i++) {
        if (strcmp(pair[i].key, "budget") == 0)
            continue;
        pair[i].left_out = true;
        int lacks = parse_rest(text, name, pair, n, budget, prompt, &other, &q);
        pair[i].left_out = !lacks && same_rows(&m, &p, &other, &q);
        err = lacks == KVF_E_NOMEM ? lacks : err;
    }
    for (int i = 0; !err && method_part_key(i); i++)
        if (strcmp(method_part_key(i), "budget") != 0)
            put_pair(out, start, pair, n, method_part_key(i));
    for (const struct method_option *o = method_options; !err && o->key; o++)
        put_pair(out, start, pair, n, o->key);
    mem_free(pair);
    return err ? err : out->err;
}

int method_options_put(struct buf *out, const char *text, const struct budget *budget,
                       const struct budget_prompt *prompt)
{
    const struct method *preset;
    struct buf full = {0};
    struct kvf_diag unused = {""};
    int err = method_expand(text, &full, &preset, &unused);
    if (!err)
        err = put_options(out, full.data, budget, prompt);
    buf_finish(&full);
    return err;
}
