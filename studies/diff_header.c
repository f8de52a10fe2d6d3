/* diff_header.c - flattens the JSON of run headers to key and value (diff_header.h). */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/order.h"
#include "base/room.h"
#include "studies/diff_header.h"

enum { MOST_DEPTH = 66, MOST_TEXT = 64 << 20 };

/* A leaf as JSON: other than text and numbers: true, false, null, {} or []. */
static void put_value(struct buf *b, const struct json *node)
{
    const char *s = json_str(node, NULL);
    double lo = json_num(node, -1), hi = json_num(node, 1);
    if (s)
        json_put_str(b, s, strlen(s));
    else if (lo == hi)
        json_put_num(b, lo);
    else if (json_is_object(node) || json_is_array(node))
        buf_str(b, json_is_object(node) ? "{}" : "[]");
    else if (json_bool(node, true) == json_bool(node, false))
        buf_str(b, json_bool(node, true) ? "true" : "false");
    else
        buf_str(b, "null");
}

static int put_pair(struct flat *f, const struct buf *key, const struct json *node, const char *raw)
{
    if (!mem_room(&f->pair, f->n, &f->cap, 64, sizeof *f->pair))
        return KVF_E_NOMEM;
    struct flat_pair *p = &f->pair[f->n++];
    p->key_at = f->text.len;
    buf_add(&f->text, key->data, key->len);
    buf_char(&f->text, 0);
    p->value_at = f->text.len;
    if (raw)
        buf_str(&f->text, raw);
    else
        put_value(&f->text, node);
    buf_char(&f->text, 0);
    return f->text.err;
}

struct level { /* a container that is being walked */
    const struct json *node;
    size_t key_len; /* of the path to it */
    int index;      /* of its next member */
};

static void put_name(struct buf *path, struct level *l, const struct json *node)
{
    path->len = l->key_len;
    if (json_is_array(l->node))
        buf_printf(path, "[%d]", l->index);
    else
        buf_printf(path, "%s%s", path->len ? "." : "", json_key(node));
    l->index++;
}

static int walk(struct flat *f, struct buf *path, const struct json *root)
{
    struct level stack[MOST_DEPTH] = {{root, path->len, 0}};
    const struct json *node = json_first(root);
    int depth = 0;
    while (node || depth > 0) {
        if (!node) {
            node = json_next(stack[depth--].node);
            continue;
        }
        put_name(path, &stack[depth], node);
        if (path->err)
            return path->err;
        if (json_first(node) && depth + 1 < MOST_DEPTH) {
            stack[++depth] = (struct level){node, path->len, 0};
            node = json_first(node);
            continue;
        }
        int err = put_pair(f, path, node, NULL);
        if (err)
            return err;
        node = json_next(node);
    }
    return KVF_OK;
}

int flat_add(struct flat *f, const char *prefix, const char *text)
{
    struct json *root = NULL;
    struct buf path = {.max = MOST_TEXT};
    f->text.max = MOST_TEXT;
    int err = json_parse(text, strlen(text), &root, NULL);
    buf_str(&path, prefix);
    if (err == KVF_E_NOMEM) {
        buf_finish(&path);
        return err;
    }
    err = err || !json_first(root) ? put_pair(f, &path, NULL, text) : walk(f, &path, root);
    json_free(root);
    buf_finish(&path);
    if (err)
        return err;
    for (size_t i = 0; i < f->n; i++) { /* the text may have moved */
        f->pair[i].key = f->text.data + f->pair[i].key_at;
        f->pair[i].value = f->text.data + f->pair[i].value_at;
    }
    qsort(f->pair, f->n, sizeof *f->pair, order_text);
    return KVF_OK;
}

void flat_free(struct flat *f)
{
    buf_finish(&f->text);
    mem_free(f->pair);
    *f = (struct flat){0};
}
