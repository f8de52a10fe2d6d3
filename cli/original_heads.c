/* original_heads.c - reads the notes of trimmed traces on the numbers of their heads. */
#include "cli/original_heads.h"

#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"

/* Reads one note and numbers its heads in their order.  False: it is not a list of heads. */
static bool read_note(const char *note, struct original_heads *x)
{
    struct json *root = NULL;
    bool good = json_parse(note, strlen(note), &root, NULL) == KVF_OK && json_is_array(root);
    *x = (struct original_heads){.n = 0};
    x->head = good ? MEM_NEW(struct original_head, (size_t)json_len(root)) : NULL;
    const struct json *item = x->head ? json_first(root) : NULL;
    for (good = x->head; good && item; item = json_next(item)) {
        struct original_head *h = &x->head[x->n], *last = x->n ? h - 1 : NULL;
        char end;
        good = sscanf(json_str(item, ""), "%9d.%9d%c", &h->of_layer, &h->of_index, &end) == 2;
        bool same = last && last->of_layer == h->of_layer;
        h->layer = last ? last->layer + !same : 0;
        h->index = same ? last->index + 1 : 0;
        x->n++;
    }
    json_free(root);
    return good;
}

/* Replaces the numbers that heads of a trimmed trace had in its source by the numbers in the run.
 * Both lists rise.  False: a head is not in the source. */
static bool trace_back(const struct original_heads *source, struct original_heads *x)
{
    int k = 0;
    for (int i = 0; i < x->n; i++, k++) {
        struct original_head *h = &x->head[i];
        while (k < source->n
               && (source->head[k].layer != h->of_layer || source->head[k].index != h->of_index))
            k++;
        if (k == source->n)
            return false;
        h->of_layer = source->head[k].of_layer;
        h->of_index = source->head[k].of_index;
    }
    return true;
}

static bool fits(const struct original_heads *x, const struct kvf_trace *t)
{
    int n = 0;
    bool moved = false;
    for (int l = 0; l < kvf_n_layers(t); l++)
        n += kvf_n_heads(t, l, KVF_SPACE_KV);
    for (int i = 0; i < x->n; i++)
        moved |= x->head[i].layer != x->head[i].of_layer || x->head[i].index != x->head[i].of_index;
    return moved && n == x->n;
}

void original_heads_read(const struct kvf_trace *t, struct original_heads *ret)
{
    struct original_heads last = {.n = 0}, x;
    char key[24] = "heads";
    bool good = true;
    for (int n = 2; good && kvf_note(t, key); n++) {
        good = read_note(kvf_note(t, key), &x) && (!last.n || trace_back(&last, &x));
        original_heads_free(&last);
        last = x;
        snprintf(key, sizeof key, "heads.%d", n);
    }
    if (!good || !fits(&last, t))
        original_heads_free(&last);
    *ret = last;
}

void original_heads_free(struct original_heads *x)
{
    mem_free(x->head);
    *x = (struct original_heads){.n = 0};
}

void original_heads_text(const struct original_heads *x, int most, struct buf *out)
{
    for (int i = 0; i < x->n && i < most; i++) {
        const struct original_head *h = &x->head[i];
        buf_printf(out, "%sL%dK%d is L%dK%d", i ? ", " : "", h->layer, h->index, h->of_layer,
                   h->of_index);
    }
    if (x->n > most)
        buf_printf(out, " and %d more", x->n - most);
}
