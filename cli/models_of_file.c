/* models_of_file.c - describes one model for `kvfate models FILE`. */
#include "cli/models_of_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "cli/folders.h"
#include "cli/model_list.h"
#include "cli/shown.h"
#include "engine/cache/cache.h"
#include "engine/decode/session.h"
#include "engine/gate/published.h"
#include "engine/model/chat.h"
#include "engine/model/model_file.h"

enum { MOST_LENGTHS = 8, MOST_SHIPPED = 16, MOST_TYPES = 64 };

/* Larger files are not hashed to search for shipped gates, which exist only for small models. */
#define HASHED_BYTES ((uint64_t)1 << 30)

/* The description of a model. */
struct found {
    const char *pre; /* the pre-tokenizer of --pre */
    struct gguf *g;
    struct model_config m;
    uint64_t parameters, file_bytes, packed;
    int64_t tensors[MOST_TYPES]; /* number of tensors of each type */
    int length[MOST_LENGTHS], n_lengths;
    struct kvf_diag template_error; /* why the chat template cannot be rendered; "" if it can */
    bool has_template, has_switch;
    struct buf shipped; /* pairs of method and file name, each ended by a NUL */
};

static void count_tensors(struct found *f)
{
    for (size_t i = 0; i < gguf_n_tensors(f->g); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(f->g, i);
        f->parameters += t->dim[0] * t->dim[1] * t->dim[2] * t->dim[3];
        f->file_bytes += t->bytes;
        if (t->type < MOST_TYPES)
            f->tensors[t->type]++;
    }
}

/* Sets the lengths for which memory is printed: the given length, or 1,024 tokens, multiplied by
 * four up to the context, and the context. */
static int choose_lengths(struct found *f, int asked, struct kvf_diag *d)
{
    if (asked > f->m.n_ctx_max)
        return kvf_fail(d, KVF_E_ARG, "--length %d is over the model's context of %d", asked,
                        f->m.n_ctx_max);
    if (asked)
        f->length[f->n_lengths++] = asked;
    for (int n = 1024; !asked && n < f->m.n_ctx && f->n_lengths < MOST_LENGTHS - 1; n *= 4)
        f->length[f->n_lengths++] = n;
    if (!asked)
        f->length[f->n_lengths++] = f->m.n_ctx;
    return KVF_OK;
}

static void try_template(struct found *f)
{
    const struct chat_message message = {"user", "Hello"};
    struct chat_request r = {.msg = &message, .n = 1, .generation = true, .date = "2026-01-31"};
    struct chat_text text;
    f->has_template = chat_has_template(f->g);
    if (f->has_template && chat_render(f->g, &r, &text, &f->template_error) == KVF_OK) {
        f->has_switch = text.has_switch;
        chat_text_free(&text);
    }
}

static void find_shipped(struct found *f)
{
    char hash[33] = "";
    if (f->file_bytes > HASHED_BYTES)
        return;
    gguf_hash(f->g, hash);
    for (const struct method *m = method_presets; m->name; m++) {
        struct buf path = {0};
        unsigned need = method_gates(m);
        if (need && folder_gates_for(m->name, need, hash, &path) == KVF_OK) {
            const char *slash = strrchr(path.data, '/'), *name = slash ? slash + 1 : path.data;
            buf_add(&f->shipped, m->name, strlen(m->name) + 1);
            buf_add(&f->shipped, name, strlen(name) - strlen(GATES_ENDING));
            buf_char(&f->shipped, 0);
        }
        buf_finish(&path);
    }
}

/* Returns true if published gates were made for a model of this shape. */
static bool fits(const struct published_gates *p, const struct model_config *m)
{
    return strcmp(p->arch, m->arch) == 0 && p->n_layers == m->n_layers && p->d_model == m->d_model
           && p->n_heads == m->n_heads && p->n_kv_heads == m->n_kv_heads
           && p->head_dim == m->head_dim && p->vocab == m->vocab;
}

static int inspect_model(const char *path, int length, struct found *f, struct kvf_diag *d)
{
    struct tokenizer *t = NULL;
    int err = model_file_open(path, &f->g, d);
    if (!err)
        err = model_config_read(f->g, &f->m, d);
    if (!err)
        err = tokenizer_create_as(f->g, f->pre, &t, d);
    if (!err)
        err = weights_bytes(f->g, &f->m, PACK_AS_STORED, &f->packed, d);
    if (!err)
        err = choose_lengths(f, length, d);
    tokenizer_destroy(t);
    if (err)
        return err;
    count_tensors(f);
    try_template(f);
    find_shipped(f);
    return f->shipped.err;
}

static int64_t cache_of(const struct found *f, enum kv_type type, int entries)
{
    const struct cache_config c = {f->m.n_layers, f->m.n_kv_heads, f->m.head_dim, type};
    return cache_bytes(&c, entries);
}

static int64_t buffers_of(const struct found *f, int length)
{
    return session_buffer_bytes(&f->m, length, 0, 2);
}

static const char *word_rule(const struct found *f, int *ret_len)
{
    size_t n = f->pre ? strlen(f->pre) : 0;
    const char *pre = f->pre ? f->pre : tokenizer_pre(f->g, &n);
    *ret_len = pre && n < 40 ? (int)n : 0;
    return pre ? pre : "";
}

/* Returns the number of layers with sliding-window attention. */
static int window_layers(const struct model_config *m)
{
    int n = 0;
    for (int layer = 0; layer < m->n_layers; layer++)
        n += model_window(m, layer) > 0;
    return n;
}

static void print_shape(const struct found *f)
{
    const struct model_config *m = &f->m;
    int n = 0;
    const char *pre = word_rule(f, &n);
    printf("model      %s\n", m->name[0] ? shown_name(m->name).text : "without a name");
    printf("family     %s (%s)\n", m->arch, m->family->models);
    printf("shape      %d layers, %d query heads, %d KV heads, %d channels a head, width %d, "
           "feed-forward %d\n",
           m->n_layers, m->n_heads, m->n_kv_heads, m->head_dim, m->d_model, m->d_ffn);
    printf("context    %d tokens", m->n_ctx);
    if (m->window)
        printf("; %d of %d layers attend only to their newest %d entries", window_layers(m),
               m->n_layers, m->window);
    printf("\ntokenizer  %s, %d tokens%s%.*s\n", tokenizer_kind(f->g)->what, m->vocab,
           n ? ", words as " : "", n, pre);
    if (!f->has_template)
        printf("template   no template: prompts are used unchanged\n");
    else if (f->template_error.text[0])
        printf("template   cannot be used, give prompts with --raw: %s\n", f->template_error.text);
    else
        printf("template   for chats%s\n",
               f->has_switch ? ", with a switch for --think and --no-think" : "");
    printf("weights    %.1f million in", (double)f->parameters / 1e6);
    const char *comma = " ";
    for (unsigned i = 0; i < MOST_TYPES; i++)
        if (f->tensors[i]) {
            printf("%s%" PRId64 " tensor%s of %s", comma, f->tensors[i],
                   f->tensors[i] == 1 ? "" : "s", weight_type_name(i));
            comma = ", ";
        }
    printf("\n");
}

static double mb(int64_t bytes)
{
    return (double)bytes / 1e6;
}

static void print_memory(const struct found *f)
{
    printf("\nmemory in MB of 10^6 bytes, by the length of prompt and answer\n%-22s", "tokens");
    for (int i = 0; i < f->n_lengths; i++)
        printf(" %10d", f->length[i]);
    printf("\n%-22s", "weights");
    for (int i = 0; i < f->n_lengths; i++)
        printf(" %10.1f", mb((int64_t)f->packed));
    for (int k = 0; k < KV_TYPES; k++) {
        printf("\nfull cache, %-10s", kv_type_name((enum kv_type)k));
        for (int i = 0; i < f->n_lengths; i++)
            printf(" %10.1f", mb(cache_of(f, (enum kv_type)k, f->length[i])));
    }
    printf("\n%-22s", "buffers");
    for (int i = 0; i < f->n_lengths; i++)
        printf(" %10.1f", mb(buffers_of(f, f->length[i])));
    printf("\n%-22s", "all, with f16");
    for (int i = 0; i < f->n_lengths; i++)
        printf(" %10.1f", mb((int64_t)f->packed + cache_of(f, KV_F16, f->length[i])
                             + buffers_of(f, f->length[i])));
    printf("\n\nA method with --budget B caches B entries of each head instead of all. Buffers are "
           "for 2 threads\nand chunks of 256 tokens, without the memory of methods and probes.\n");
}

static void print_gates(const struct found *f)
{
    int published = 0;
    printf("\ngates\n");
    for (size_t at = 0; at < f->shipped.len;) {
        const char *method = f->shipped.data + at, *name = method + strlen(method) + 1;
        printf("  %-12s %s, shipped\n", method, name);
        at += strlen(method) + strlen(name) + 2;
    }
    for (int i = 0; published_gates_at(i); i++) {
        const struct published_gates *p = published_gates_at(i);
        if (!fits(p, &f->m))
            continue;
        printf("  %-12s %s, for %s%s\n", p->method, p->name, p->base,
               p->converts ? "" : " (to be saved as safetensors)");
        published++;
    }
    if (published)
        printf("\nPublished gates are listed by the model's shape: take those for your model.\n");
    else if (!f->shipped.len)
        printf("  no gates are shipped, or known for a model of this shape; kvfate train makes "
               "some\n");
}

static void put_memory(struct buf *b, const struct found *f)
{
    json_put_key(b, "memory");
    for (int i = 0; i < f->n_lengths; i++) {
        buf_str(b, i ? ",{" : "[{");
        json_put_member_num(b, "length", f->length[i]);
        json_put_member_num(b, "weights", (double)f->packed);
        for (int k = 0; k < KV_TYPES; k++) {
            char key[16];
            snprintf(key, sizeof key, "cache_%s", kv_type_name((enum kv_type)k));
            json_put_member_num(b, key, (double)cache_of(f, (enum kv_type)k, f->length[i]));
        }
        json_put_member_num(b, "buffers", (double)buffers_of(f, f->length[i]));
        buf_char(b, '}');
    }
    buf_char(b, ']');
}

static void put_gates(struct buf *b, const struct found *f)
{
    const char *comma = "";
    json_put_key(b, "gates");
    buf_char(b, '[');
    for (size_t at = 0; at < f->shipped.len;) {
        const char *method = f->shipped.data + at, *name = method + strlen(method) + 1;
        buf_printf(b, "%s{", comma);
        json_put_member_str(b, "method", method);
        json_put_member_str(b, "name", name);
        json_put_key(b, "shipped");
        buf_str(b, "true}");
        comma = ",";
        at += strlen(method) + strlen(name) + 2;
    }
    for (int i = 0; published_gates_at(i); i++) {
        const struct published_gates *p = published_gates_at(i);
        if (!fits(p, &f->m))
            continue;
        buf_printf(b, "%s{", comma);
        json_put_member_str(b, "method", p->method);
        json_put_member_str(b, "name", p->name);
        json_put_member_str(b, "base", p->base);
        json_put_key(b, "converts");
        buf_printf(b, "%s}", p->converts ? "true" : "false");
        comma = ",";
    }
    buf_char(b, ']');
}

static void put_shape(struct buf *b, const struct found *f)
{
    const struct model_config *m = &f->m;
    int n = 0;
    const char *pre = word_rule(f, &n);
    json_put_member_str(b, "name", m->name);
    json_put_member_str(b, "arch", m->arch);
    json_put_member_num(b, "layers", m->n_layers);
    json_put_member_num(b, "query_heads", m->n_heads);
    json_put_member_num(b, "kv_heads", m->n_kv_heads);
    json_put_member_num(b, "head_dim", m->head_dim);
    json_put_member_num(b, "width", m->d_model);
    json_put_member_num(b, "feed_forward", m->d_ffn);
    json_put_member_num(b, "vocab", m->vocab);
    json_put_member_num(b, "context", m->n_ctx);
    json_put_member_num(b, "window", m->window);
    json_put_member_num(b, "layers_with_window", window_layers(m));
    json_put_member_num(b, "parameters", (double)f->parameters);
    json_put_member_str(b, "tokenizer", tokenizer_kind(f->g)->key);
    json_put_key(b, "pre_tokenizer");
    json_put_str(b, pre, (size_t)n);
    json_put_key(b, "template");
    buf_str(b, f->has_template ? "true" : "false");
    if (f->template_error.text[0])
        json_put_member_str(b, "template_error", f->template_error.text);
    json_put_key(b, "tensors");
    buf_char(b, '{');
    for (unsigned i = 0; i < MOST_TYPES; i++)
        if (f->tensors[i])
            json_put_member_num(b, weight_type_name(i), (double)f->tensors[i]);
    buf_char(b, '}');
}

static int print_json(const struct found *f)
{
    struct buf b = {0};
    buf_char(&b, '{');
    put_shape(&b, f);
    put_memory(&b, f);
    put_gates(&b, f);
    buf_str(&b, "}\n");
    const int err = b.err;
    if (!err)
        fwrite(b.data, 1, b.len, stdout);
    buf_finish(&b);
    return err;
}

int models_of_file(const char *path, const char *pre, int length, bool json, struct kvf_diag *d)
{
    struct found f = {.g = NULL, .pre = pre};
    struct buf file = {0};
    int err = model_path(path, &file, d);
    if (!err)
        err = inspect_model(file.data, length, &f, d);
    if (!err && json) {
        err = print_json(&f);
    } else if (!err) {
        print_shape(&f);
        print_memory(&f);
        print_gates(&f);
    }
    buf_finish(&file);
    buf_finish(&f.shipped);
    gguf_close(f.g);
    return err;
}
