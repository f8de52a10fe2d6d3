/* spans.c - reads a file of spans and converts bytes to tokens. */
#include "base/files.h"
#include "engine/experiment/spans.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"

enum { MOST_SPANS = 4096 };

/* A span of the file. */
struct item {
    const char *name;
    bool useful;
    int64_t start, end; /* in bytes */
};

static bool good_name(const char *s)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz"
                                  "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    size_t n = s ? strlen(s) : 0;
    return n > 0 && n <= 16 && strspn(s, letters) == n;
}

static int read_item(const struct json *node, const char *file, int i, struct item *ret,
                     struct kvf_diag *d)
{
    *ret = (struct item){
        json_str(json_get(node, "name"), NULL), json_bool(json_get(node, "useful"), true),
        json_int(json_get(node, "start"), -1), json_int(json_get(node, "end"), -1)};
    if (!good_name(ret->name))
        return kvf_fail(d, KVF_E_FORMAT,
                        "%s: span %d needs a \"name\" of 1 to 16 letters, digits, "
                        "- or _",
                        file, i + 1);
    if (ret->start < 0 || ret->end <= ret->start)
        return kvf_fail(d, KVF_E_FORMAT,
                        "%s: span %d (%s) needs whole numbers \"start\" < "
                        "\"end\", bytes of the prompt",
                        file, i + 1, ret->name);
    return KVF_OK;
}

static int by_start(const void *a, const void *b)
{
    const int32_t *x = a, *y = b;
    return (x[0] > y[0]) - (x[0] < y[0]);
}

static void join(struct span_name *s)
{
    int n = 0;
    if (s->n > 0)
        qsort(s->range, (size_t)s->n, sizeof *s->range, by_start);
    for (int i = 0; i < s->n; i++) {
        int32_t *last = n > 0 ? s->range[n - 1] : NULL;
        if (last && s->range[i][0] <= last[1]) {
            last[1] = s->range[i][1] > last[1] ? s->range[i][1] : last[1];
            continue;
        }
        memmove(s->range[n++], s->range[i], sizeof *s->range);
    }
    s->n = n;
}

static int add_range(struct span_name *s, int32_t a, int32_t b)
{
    int32_t(*grown)[2] = mem_grow(s->range, (size_t)s->n, (size_t)s->n + 1, sizeof *s->range);
    if (!grown)
        return KVF_E_NOMEM;
    s->range = grown;
    s->range[s->n][0] = a;
    s->range[s->n++][1] = b;
    return KVF_OK;
}

static int take_item(struct spans *s, const struct item *x, int32_t a, int32_t b,
                     struct kvf_diag *d)
{
    int k = 0;
    while (k < s->n && strcmp(s->name[k].name, x->name) != 0)
        k++;
    if (k == s->n) { /* there is space for a name of each item */
        snprintf(s->name[s->n].name, sizeof s->name->name, "%s", x->name);
        s->name[s->n++].useful = x->useful;
    }
    if (s->name[k].useful != x->useful)
        return kvf_fail(d, KVF_E_FORMAT, "%s: spans of the name %s are useful or not, all alike",
                        s->file, x->name);
    int err = add_range(&s->name[k], a, b);
    return !err && x->useful ? add_range(&s->all, a, b) : err;
}

static int take_items(struct spans *s, const struct json *list, const struct prompt *p,
                      const int64_t *end, struct kvf_diag *d)
{
    int64_t from = (int64_t)p->at, all = p->n_ids ? end[prompt_all(p) - 1] : 0;
    int64_t bytes = p->bytes ? (int64_t)p->bytes : all;
    int err = KVF_OK, i = 0;
    for (const struct json *x = json_first(list); !err && x; x = json_next(x), i++) {
        struct item item;
        err = read_item(x, s->file, i, &item, d);
        if (!err && item.end > bytes)
            err = kvf_fail(d, KVF_E_FORMAT,
                           "%s: span %d (%s) ends at byte %lld, and the prompt "
                           "has %lld",
                           s->file, i + 1, item.name, (long long)item.end, (long long)bytes);
        if (!err)
            err = take_item(s, &item, prompt_token_at(end, prompt_all(p), from + item.start),
                            prompt_token_at(end, prompt_all(p), from + item.end - 1) + 1, d);
    }
    return err;
}

/* Makes the sets for probes: all useful ranges together, and each name. A single useful name is
 * not repeated. */
static void make_sets(struct spans *s)
{
    int useful = 0;
    for (int k = 0; k < s->n; k++)
        useful += s->name[k].useful;
    s->set[s->n_sets++] = (struct probe_span_set){"", s->all.n, (const int32_t(*)[2])s->all.range};
    for (int k = 0; k < s->n && s->n_sets < PROBE_SPAN_SETS; k++)
        if (!s->name[k].useful || useful > 1)
            s->set[s->n_sets++] = (struct probe_span_set){s->name[k].name, s->name[k].n,
                                                          (const int32_t(*)[2])s->name[k].range};
}

static int take_file(struct spans *s, const struct json *root, const struct prompt *p,
                     const struct tokenizer *names, struct kvf_diag *d)
{
    const struct json *list = json_is_array(root) ? root : json_get(root, "spans");
    int64_t *end = NULL;
    int n = json_is_array(list) ? json_len(list) : 0;
    if (p->changed)
        return kvf_fail(
            d, KVF_E_FORMAT,
            "--spans: the chat template changes the prompt, for example strips it, so that places "
            "in it are undefined; give a prompt without blanks at its ends, or --raw");
    if (n < 1 || n > MOST_SPANS)
        return kvf_fail(d, KVF_E_FORMAT,
                        "%s: expected {\"spans\": [{\"name\", \"start\", "
                        "\"end\"}, ...]} with 1 to %d spans",
                        s->file, MOST_SPANS);
    int err = prompt_ends(p, names, &end, d);
    if (err)
        kvf_diag_prefix(d, "--spans");
    if (!err) {
        s->name = MEM_NEW(struct span_name, (size_t)n);
        err = s->name ? KVF_OK : KVF_E_NOMEM;
    }
    if (!err)
        err = take_items(s, list, p, end, d);
    mem_free(end);
    for (int k = 0; !err && k < s->n; k++)
        join(&s->name[k]);
    if (!err) {
        join(&s->all);
        make_sets(s);
    }
    return err;
}

int spans_open(struct spans *s, const struct prompt *p, const struct tokenizer *names,
               struct kvf_diag *d)
{
    struct buf text = {0};
    struct json *root = NULL;
    if (!s->file)
        return KVF_OK;
    int err = file_read(s->file, &text, d);
    if (!err) {
        err = json_parse(text.data ? text.data : "", text.len, &root, d);
        if (err)
            kvf_diag_prefix(d, "%s", s->file);
    }
    if (!err)
        err = take_file(s, root, p, names, d);
    json_free(root);
    buf_finish(&text);
    return err;
}

void spans_close(struct spans *s)
{
    for (int k = 0; k < s->n; k++)
        mem_free(s->name[k].range);
    mem_free(s->name);
    mem_free(s->all.range);
    *s = (struct spans){0};
}

void spans_put(const struct spans *s, struct buf *b)
{
    if (!s->file)
        return;
    buf_str(b, ",\"spans\":[");
    for (int k = 0; k < s->n; k++) {
        const struct span_name *x = &s->name[k];
        buf_str(b, k ? ",{" : "{");
        json_put_member_str(b, "name", x->name);
        json_put_key(b, "useful");
        buf_str(b, x->useful ? "true" : "false");
        json_put_key(b, "tokens");
        for (int i = 0; i < x->n; i++)
            buf_printf(b, "%s[%d,%d]", i ? "," : "[", (int)x->range[i][0], (int)x->range[i][1]);
        buf_str(b, "]}");
    }
    buf_char(b, ']');
}
