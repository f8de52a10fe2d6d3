/* Files of torch.save: the same numbers as in safetensors, whatever way they were
 * saved, and damage that does no harm.  $KVF_TORCH is tests/data/torch, written by
 * tests/data/make_torch_gates.py with torch. */
#include <stdlib.h>

#include "file.h"

enum { L = 2, G = 4, H = 2, D = 4, D_MODEL = 6, MOST = 1 << 16 };

static const struct pair {
    const char *torch, *same; /* files; the second has the numbers that NumPy wrote */
    const char *kind, *layout;
    bool tied;
} pairs[] = {{"rg.pth", "rg", "retention", "rg", false},
             {"rg_protocol4.pth", "rg", "retention", "rg", false},
             {"rg_strides.pth", "rg", "retention", "rg", false},
             {"rg_bf16.pth", "rg_bf16", "retention", "rg", false},
             {"rg_f16.pth", "rg_f16", "retention", "rg", false},
             {"rg10_tied.pth", "rg10_tied", "retention", "rg10", true},
             {"rg10_bf16.pth", "rg10_bf16", "retention", "rg10", false},
             {"rg10_inner.pth", "rg10_bf16", "retention", "rg10", false},
             {"wgkv.pt", "wgkv", "write", "wgkv", false},
             {"wgkv_nested.pt", "wgkv", "write", "wgkv", false},
             {"linear.pth", "linear", "retention", "linear", false},
             {"rgkv.pth", "rgkv", "retention", "rgkv", false}};
enum { N_PAIRS = sizeof pairs / sizeof *pairs };

static int hidden_of(const struct pair *p)
{
    return strcmp(p->layout, "linear") == 0 ? 0 : 4;
}

static struct gates_model model_of(int n_layers, int d_model)
{
    return (struct gates_model){n_layers, d_model, G, H, D, 1e-5f, 1e4, "feed", reference()};
}

static const char *path_of(char out[4096], const char *name, const char *end)
{
    const char *dir = getenv("KVF_TORCH");
    cr_assert(dir != NULL, "KVF_TORCH is not set");
    snprintf(out, 4096, "%s/%s%s", dir, name, end);
    return out;
}

static struct gates *open_one(const char *name, const char *end)
{
    char path[4096];
    struct gates_model m = model_of(L, D_MODEL);
    struct gates *g = NULL;
    struct kvf_diag d = {""};
    cr_assert(zero(int, gates_open(path_of(path, name, end), &m, &g, &d)), "%s", d.text);
    return g;
}

/* All numbers of 16 tokens. */
static void numbers(const struct gates *g, float *out)
{
    enum { TOKENS = 16, WIDE = G * D };
    float in[5][WIDE];
    unsigned seed = 1;
    float *scratch = MEM_NEW(float, gates_scratch(g));
    for (int t = 0; t < TOKENS; t++) {
        for (int i = 0; i < 5 * WIDE; i++) {
            seed = seed * 1664525u + 1013904223u;
            in[i / WIDE][i % WIDE] = (float)(seed >> 8) / (1 << 23) - 1;
        }
        struct gate_input x = {in[0], in[1], in[2], in[3], in[4], t};
        for (int l = 0; l < L; l++)
            gates_eval(g, l, &x, out + (t * L + l) * H, scratch);
    }
    mem_free(scratch);
}

Test(torch_files, numbers_are_those_of_safetensors)
{
    enum { N = 16 * L * H };
    for (int i = 0; i < N_PAIRS; i++) {
        const struct pair *p = &pairs[i];
        struct gates *a = open_one(p->torch, ""), *b = open_one(p->same, ".safetensors");
        float x[N], y[N], other = 0;
        numbers(a, x);
        numbers(b, y);
        cr_expect(zero(int, memcmp(x, y, sizeof x)), "%s", p->torch);
        for (int k = 1; k < N; k++)
            other += x[k] != x[0];
        cr_expect(other > N / 2, "%s: equal numbers", p->torch);
        cr_expect(zero(int, strcmp(gates_kind_name(gates_kind(a)), p->kind)));
        cr_expect(zero(int, strcmp(gates_layout(a), p->layout)));
        cr_expect(zero(int, strcmp(gates_container(a), "torch")));
        cr_expect(zero(int, strcmp(gates_container(b), "safetensors")));
        cr_expect(eq(int, gates_tied(a), p->tied), "%s", p->torch);
        cr_expect(eq(int, gates_tied(b), p->tied), "%s", p->same);
        cr_expect(eq(int, gates_hidden(a), hidden_of(p)));
        cr_expect(strcmp(gates_hash(a), gates_hash(b)) != 0);
        gates_close(a);
        gates_close(b);
    }
}

/* Keys of torch files are in PyTorch's order: read as pairs they would give others. */
static void read_as_pairs(const char *torch, const char *same)
{
    enum { N = 16 * L * H };
    char path[4096];
    static unsigned char bytes[MOST];
    float x[N], y[N];
    FILE *f = fopen(path_of(path, same, ".safetensors"), "rb");
    cr_assert(f != NULL);
    size_t n = fread(bytes, 1, sizeof bytes, f);
    fclose(f);
    unsigned char *order = memmem(bytes, n, "\"halves\"", 8);
    cr_assert(order != NULL);
    memcpy(order, "\"pairs\" ", 8);
    struct gates_model m = model_of(L, D_MODEL);
    struct kvf_diag d;
    struct gates *a = open_one(torch, ""), *b;
    cr_assert(zero(int, try_open(bytes, n, &m, &b, &d)), "%s", d.text);
    numbers(a, x);
    numbers(b, y);
    cr_expect(memcmp(x, y, sizeof x) != 0);
    gates_close(a);
    gates_close(b);
}

Test(torch_files, heads_are_turned)
{
    read_as_pairs("wgkv.pt", "wgkv");
    read_as_pairs("rgkv.pth", "rgkv");
}

/* rg and rgkv have the same names: a model as wide as its keys and values has rg. */
Test(torch_files, the_model_tells_rg_from_rgkv)
{
    char path[4096];
    struct gates_model m = model_of(L, 2 * H * D);
    struct kvf_diag d = {""};
    struct gates *g = NULL;
    cr_assert(zero(int, gates_open(path_of(path, "rgkv.pth", ""), &m, &g, &d)), "%s", d.text);
    cr_expect(zero(int, strcmp(gates_layout(g), "rg")));
    gates_close(g);
}

/* Without a model: the sizes that the script gave; rgkv then looks like rg. */
Test(torch_files, sizes_are_told)
{
    for (int i = 0; i < N_PAIRS; i++) {
        char path[4096];
        struct kvf_diag d = {""};
        struct gates *g = NULL;
        bool keys = strcmp(pairs[i].layout, "wgkv") == 0;
        cr_assert(zero(int, gates_read(path_of(path, pairs[i].torch, ""), &g, &d)), "%s", d.text);
        const struct gates_model *m = gates_model_of(g);
        cr_expect(eq(int, m->n_layers, L));
        cr_expect(eq(int, m->n_kv_heads, H));
        bool both = strcmp(pairs[i].layout, "rgkv") == 0;
        cr_expect(zero(int, strcmp(gates_layout(g), both ? "rg" : pairs[i].layout)));
        cr_expect(eq(int, m->d_model, keys ? 0 : both ? 2 * H *D : D_MODEL));
        cr_expect(eq(int, m->head_dim, keys ? D : 0));
        cr_expect(eq(int, gates_hidden(g), hidden_of(&pairs[i])));
        cr_expect(eq(int, gates_tied(g), pairs[i].tied));
        cr_expect(zero(int, strcmp(gates_meta(g), "{}")));
        gates_close(g);
    }
}

static void refused(const char *name, const struct gates_model *m, const char *word)
{
    char path[4096];
    struct kvf_diag d = {""};
    struct gates *g = NULL;
    int err = gates_open(path_of(path, name, ""), m, &g, &d);
    cr_expect(eq(int, err, KVF_E_FORMAT));
    cr_expect(g == NULL && strstr(d.text, word), "%s: \"%s\" lacks \"%s\"", name, d.text, word);
}

Test(torch_files, other_models_are_refused)
{
    struct gates_model deep = model_of(3, D_MODEL), shallow = model_of(1, D_MODEL),
                       wide = model_of(L, 7), odd = model_of(L, D_MODEL);
    odd.head_dim = 5;
    refused("rg.pth", &deep, "model.layers.2.");
    refused("rg.pth", &shallow, "model.layers.1.");
    refused("rg.pth", &wide, "[4, 6], expected [4, 7]");
    refused("linear.pth", &wide, "[2, 6], expected [2, 7]");
    refused("rgkv.pth", &odd, "[4, 16], expected [4, 6]");
    refused("rg10_inner.pth", &deep, "model.language_model.layers.2.");
    refused("wgkv.pt", &odd, "5 channels");
}

static size_t load(const char *name, unsigned char *out)
{
    char path[4096];
    FILE *f = fopen(path_of(path, name, ""), "rb");
    cr_assert(f != NULL);
    size_t n = fread(out, 1, MOST, f);
    fclose(f);
    return n;
}

Test(torch_files, cut_at_every_byte)
{
    static unsigned char bytes[MOST];
    struct gates_model m = model_of(L, D_MODEL);
    struct kvf_diag d;
    for (int i = 0; i < N_PAIRS; i++) {
        size_t n = load(pairs[i].torch, bytes);
        cr_assert(zero(int, try_use(bytes, n, &m, &d)), "%s", d.text);
        for (size_t k = 0; k < n; k++)
            cr_assert(eq(int, try_use(bytes, k, &m, &d), KVF_E_FORMAT), "%s, %zu bytes: %s",
                      pairs[i].torch, k, d.text);
    }
}

/* Most bytes are under a checksum; padding, times and versions are not. */
Test(torch_files, every_byte_is_wrong_once, .timeout = 60)
{
    static const unsigned char flips[] = {1, 0x80, 0xff};
    static unsigned char bytes[MOST];
    struct gates_model m = model_of(L, D_MODEL);
    struct kvf_diag d;
    size_t tried = 0, opened = 0;
    for (int i = 5; i < 10; i += 3) { /* a tied one, one of the other kind */
        size_t n = load(pairs[i].torch, bytes);
        for (size_t k = 0; k < n; k++)
            for (size_t f = 0; f < sizeof flips; f++, tried++) {
                bytes[k] ^= flips[f];
                opened += try_use(bytes, n, &m, &d) == KVF_OK;
                bytes[k] ^= flips[f];
            }
    }
    cr_expect(opened < tried / 2, "%zu of %zu opened", opened, tried);
}
