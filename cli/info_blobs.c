/* info_blobs.c - lists the kinds of blobs of a trace. */
#include "cli/info_blobs.h"

#include <string.h>

#include "base/json.h"
#include "base/mem.h"

/* limits the output, since a file may give each of its blobs its own name */
enum { MOST_KINDS = 64 };

/* A kind of blob: equal name, type and shape without the first dimension. Blobs are ordered by
 * layer and head, so heads are counted whenever they change. */
struct kind {
    struct kvf_blob last;
    uint64_t blobs, heads, bytes;
    uint32_t least, most;     /* minimum and maximum of the first dimension */
    uint32_t from, to;        /* first token or step, and the end of the range */
    int first_layer, head[2]; /* minimum and maximum head index */
};

struct kinds {
    struct kind *kind; /* [n] owned */
    int n;
    uint64_t others; /* blobs of kinds beyond MOST_KINDS */
};

const char *dtype_name(int dtype)
{
    static const char *const names[] = {"?",   "u8",  "u16", "u32", "i32",
                                        "f32", "f64", "u64", "f16", "bf16"};
    return names[dtype >= KVF_U8 && dtype <= KVF_BF16 ? dtype : 0];
}

static bool alike(const struct kvf_blob *a, const struct kvf_blob *b)
{
    return a->dtype == b->dtype && a->rank == b->rank && strcmp(a->name, b->name) == 0
           && memcmp(a->shape + 1, b->shape + 1, sizeof a->shape - sizeof a->shape[0]) == 0;
}

static void add(struct kind *k, const struct kvf_blob *b)
{
    uint32_t n = b->shape[0], end = b->t0 + n;
    if (k->blobs == 0)
        *k = (struct kind){
            .least = n, .from = b->t0, .first_layer = b->layer, .head = {b->head, b->head}};
    k->heads += !k->blobs || b->layer != k->last.layer || b->head != k->last.head;
    k->blobs++;
    k->bytes += kvf_blob_size(b);
    k->least = n < k->least ? n : k->least;
    k->most = n > k->most ? n : k->most;
    k->from = b->t0 < k->from ? b->t0 : k->from;
    k->to = end > k->to ? end : k->to;
    k->head[0] = b->head < k->head[0] ? b->head : k->head[0];
    k->head[1] = b->head > k->head[1] ? b->head : k->head[1];
    k->last = *b;
}

static int gather(struct kvf_trace *t, struct kinds *ret, struct kvf_diag *d)
{
    ret->kind = MEM_NEW(struct kind, MOST_KINDS);
    if (!ret->kind)
        return KVF_E_NOMEM;
    for (int i = 0; i < kvf_n_blobs(t); i++) {
        struct kvf_blob b;
        int err = kvf_blob(t, i, &b, d), k = 0;
        if (err)
            return err;
        while (k < ret->n && !alike(&ret->kind[k].last, &b))
            k++;
        if (k == MOST_KINDS) {
            ret->others++;
            continue;
        }
        ret->n += k == ret->n;
        add(&ret->kind[k], &b);
    }
    return KVF_OK;
}

static void put_shape(struct buf *b, const struct kind *k)
{
    if (k->least < k->most)
        buf_printf(b, "%u to ", k->least);
    for (int i = 0; i < k->last.rank; i++)
        buf_printf(b, "%s%u", i ? " x " : "", i ? k->last.shape[i] : k->most);
}

static void put_kind(struct buf *b, const struct kind *k)
{
    buf_printf(b, "  %-22s %-4s ", k->last.name, dtype_name(k->last.dtype));
    put_shape(b, k);
    if (k->heads == 1)
        buf_printf(b, ", layer %d, head %d", k->first_layer, k->head[0]);
    else if (k->first_layer == k->last.layer)
        buf_printf(b, ", %llu heads of layer %d", (unsigned long long)k->heads, k->first_layer);
    else
        buf_printf(b, ", %llu heads of layers %d to %d", (unsigned long long)k->heads,
                   k->first_layer, k->last.layer);
    buf_printf(b, ", indices %u to %u, ", k->from, k->to - 1);
    if (k->blobs > 1)
        buf_printf(b, "%llu blobs of ", (unsigned long long)k->blobs);
    buf_printf(b, "%llu bytes%s\n", (unsigned long long)k->bytes, k->blobs > 1 ? " in all" : "");
}

int info_blobs_text(struct buf *b, struct kvf_trace *t, struct kvf_diag *d)
{
    struct kinds all = {.n = 0};
    int err = gather(t, &all, d);
    if (all.n)
        buf_str(b, "blobs\n");
    for (int i = 0; i < all.n; i++)
        put_kind(b, &all.kind[i]);
    if (all.others)
        buf_printf(b, "  and %llu of other kinds\n", (unsigned long long)all.others);
    mem_free(all.kind);
    return err;
}

static void put_range(struct buf *b, const char *key, double first, double last)
{
    json_put_key(b, key);
    buf_char(b, '[');
    json_put_num(b, first);
    buf_char(b, ',');
    json_put_num(b, last);
    buf_char(b, ']');
}

static void put_kind_json(struct buf *b, const struct kind *k)
{
    buf_char(b, '{');
    json_put_key(b, "name");
    json_put_str(b, k->last.name, strlen(k->last.name));
    buf_printf(b, ",\"dtype\":\"%s\",\"shape\":[", dtype_name(k->last.dtype));
    for (int i = 0; i < k->last.rank; i++)
        buf_printf(b, "%s%u", i ? "," : "", i ? k->last.shape[i] : k->most);
    buf_printf(b, "],\"least\":%u,\"blobs\":%llu,\"heads\":%llu", k->least,
               (unsigned long long)k->blobs, (unsigned long long)k->heads);
    put_range(b, "layer", k->first_layer, k->last.layer);
    put_range(b, "head", k->head[0], k->head[1]);
    put_range(b, "index", k->from, (double)k->to - 1);
    buf_printf(b, ",\"bytes\":%llu}", (unsigned long long)k->bytes);
}

int info_blobs_json(struct buf *b, struct kvf_trace *t, struct kvf_diag *d)
{
    struct kinds all = {.n = 0};
    int err = gather(t, &all, d);
    buf_char(b, '[');
    for (int i = 0; i < all.n; i++) {
        if (i)
            buf_char(b, ',');
        put_kind_json(b, &all.kind[i]);
    }
    buf_char(b, ']');
    mem_free(all.kind);
    return err;
}
