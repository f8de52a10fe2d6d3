/* test_converted.c - gates converted from torch.save files. Kind, layout and sizes are derived from
 * the names of tensors, and the gate values equal those of the same tensors with metadata.
 * $KVF_TORCH is tests/data/torch, written by tests/data/make_torch_gates.py with torch;
 * $KVF_CONVERTED has these files as `kvfate gates convert` writes them. */
#include "base/json.h"
#include "file.h"
#include "tests/files.h"

enum { L = 2, G = 4, H = 2, D = 4, D_MODEL = 6, MOST = 1 << 16 };

static const struct pair {
    const char *torch, *same; /* the converted file, and the file written by NumPy */
    const char *kind, *layout;
    bool tied;
} pairs[] = {{"rg", "rg", "retention", "rg", false},
             {"rg_protocol4", "rg", "retention", "rg", false},
             {"rg_strides", "rg", "retention", "rg", false},
             {"rg_bf16", "rg_bf16", "retention", "rg", false},
             {"rg_f16", "rg_f16", "retention", "rg", false},
             {"rg10_tied", "rg10_tied", "retention", "rg10", true},
             {"rg10_bf16", "rg10_bf16", "retention", "rg10", false},
             {"rg10_inner", "rg10_bf16", "retention", "rg10", false},
             {"wgkv", "wgkv", "write", "wgkv", false},
             {"wgkv_nested", "wgkv", "write", "wgkv", false},
             {"locret", "locret", "importance", "locret", false},
             {"linear", "linear", "retention", "linear", false},
             {"rg2", "rg2", "retention", "rg2", false},
             {"rg3", "rg3", "retention", "rg3", false}};
enum { N_PAIRS = sizeof pairs / sizeof *pairs };

static int hidden_of(const struct pair *p)
{
    return strcmp(p->layout, "linear") == 0 ? 0 : 4;
}

static struct gates_model model_of(int n_layers, int d_model)
{
    return (struct gates_model){n_layers, d_model, G, H, D, 1e-5f, 1e4, "feed", reference()};
}

/* Builds the path of a converted file, or of a file in $KVF_TORCH. */
static const char *path_of(char out[4096], const char *name, bool converted)
{
    const char *dir = getenv(converted ? "KVF_CONVERTED" : "KVF_TORCH");
    cr_assert(dir != NULL, "KVF_CONVERTED or KVF_TORCH is not set");
    snprintf(out, 4096, converted ? "%s/torch_%s.safetensors" : "%s/%s", dir, name);
    return out;
}

static struct gates *open_path(const char *path)
{
    struct gates_model m = model_of(L, D_MODEL);
    struct gates *g = NULL;
    succeeds(gates_open(path, &m, &g, &d));
    return g;
}

static struct gates *open_converted(const char *name)
{
    char path[4096];
    return open_path(path_of(path, name, true));
}

/* Builds the path of the file written by NumPy. */
static const char *twin_of(char out[4096], const char *name)
{
    char file[64];
    snprintf(file, sizeof file, "%s.safetensors", name);
    return path_of(out, file, false);
}

/* Computes the gate values of 16 tokens. */
static void numbers(const struct gates *g, float *out)
{
    enum { TOKENS = 16, WIDE = G * D };
    float in[5][WIDE];
    unsigned seed = 1;
    OWNED(mem_free) float *scratch = MEM_NEW(float, gates_scratch(g));
    for (int t = 0; t < TOKENS; t++) {
        for (int i = 0; i < 5 * WIDE; i++) {
            seed = seed * 1664525u + 1013904223u;
            in[i / WIDE][i % WIDE] = (float)(seed >> 8) / (1 << 23) - 1;
        }
        struct gate_input x = {in[0], in[1], in[2], in[3], in[4], t};
        for (int l = 0; l < L; l++)
            gates_eval(g, l, &x, out + (t * L + l) * H, scratch);
    }
}

Test(converted, numbers_are_those_with_metadata)
{
    enum { N = 16 * L * H };
    for (int i = 0; i < N_PAIRS; i++) {
        const struct pair *p = &pairs[i];
        char path[4096];
        struct gates *a = open_converted(p->torch), *b = open_path(twin_of(path, p->same));
        float x[N], y[N], other = 0;
        numbers(a, x);
        numbers(b, y);
        cr_expect(zero(int, memcmp(x, y, sizeof x)), "%s", p->torch);
        for (int k = 1; k < N; k++)
            other += x[k] != x[0];
        cr_expect(other > N / 2, "%s: equal numbers", p->torch);
        cr_expect(zero(int, strcmp(gates_kind_name(gates_kind(a)), p->kind)));
        cr_expect(zero(int, strcmp(gates_layout(a), p->layout)));
        cr_expect(eq(int, gates_tied(a), p->tied), "%s", p->torch);
        cr_expect(eq(int, gates_tied(b), p->tied), "%s", p->same);
        cr_expect(eq(int, gates_hidden(a), hidden_of(p)));
        cr_expect(strcmp(gates_hash(a), gates_hash(b)) != 0);
        gates_close(a);
        gates_close(b);
    }
}

/* Keys of converted files are in PyTorch's order. Read as pairs, they give different values. */
static void read_as_pairs(const char *torch, const char *same)
{
    enum { N = 16 * L * H };
    char path[4096];
    size_t n;
    float x[N], y[N];
    OWNED(mem_free) char *bytes = read_whole(twin_of(path, same), &n);
    char *order = memmem(bytes, n, "\"halves\"", 8);
    cr_assert(order != NULL);
    memcpy(order, "\"pairs\" ", 8);
    struct gates_model m = model_of(L, D_MODEL);
    struct gates *a = open_converted(torch), *b;
    succeeds(try_open(bytes, n, &m, &b, &d));
    numbers(a, x);
    numbers(b, y);
    cr_expect(memcmp(x, y, sizeof x) != 0);
    gates_close(a);
    gates_close(b);
}

Test(converted, heads_are_turned)
{
    read_as_pairs("wgkv", "wgkv");
    read_as_pairs("rg2", "rg2");
    read_as_pairs("rg3", "rg3");
    read_as_pairs("locret", "locret");
}

/* Without a model, the sizes are those in the script. Only a model can distinguish rg2 from rg. */
Test(converted, sizes_are_told)
{
    for (int i = 0; i < N_PAIRS; i++) {
        char path[4096];
        struct kvf_diag d = {""};
        OWNED(gates_close) struct gates *g = NULL;
        const char *layout = pairs[i].layout;
        bool unsure = strcmp(layout, "rg2") == 0, rg3 = strcmp(layout, "rg3") == 0,
             keys = strcmp(layout, "wgkv") == 0 || rg3, entry = strcmp(layout, "locret") == 0;
        cr_assert(zero(int, gates_read(path_of(path, pairs[i].torch, true), &g, &d)), "%s", d.text);
        const struct gates_model *m = gates_model_of(g);
        cr_expect(eq(int, m->n_layers, L));
        cr_expect(eq(int, m->n_kv_heads, H));
        cr_expect(zero(int, strcmp(gates_layout(g), unsure ? "rg or rg2" : layout)));
        cr_expect(eq(int, m->d_model, keys || unsure || entry ? 0 : D_MODEL));
        cr_expect(eq(int, m->head_dim, keys ? D : 0));
        cr_expect(eq(int, gates_hidden(g), hidden_of(&pairs[i])));
        cr_expect(eq(int, gates_tied(g), pairs[i].tied));
        cr_expect(zero(int, strcmp(gates_meta(g), "{\"format\":\"pt\"}")));
    }
}

static void refused(const char *name, const struct gates_model *m, const char *word)
{
    char path[4096];
    struct kvf_diag d = {""};
    struct gates *g = NULL;
    int err = gates_open(path_of(path, name, true), m, &g, &d);
    cr_expect(eq(int, err, KVF_E_FORMAT));
    cr_expect(g == NULL && strstr(d.text, word), "%s: \"%s\" lacks \"%s\"", name, d.text, word);
}

Test(converted, other_models_are_refused)
{
    struct gates_model deep = model_of(3, D_MODEL), shallow = model_of(1, D_MODEL),
                       wide = model_of(L, 7), odd = model_of(L, D_MODEL);
    odd.head_dim = 5;
    refused("rg", &deep, "model.layers.2.");
    refused("rg", &shallow, "model.layers.1.");
    refused("rg", &wide, "[4, 6], expected [4, 7]");
    refused("linear", &wide, "[2, 6], expected [2, 7]");
    refused("rg2", &odd, "[4, 16], expected [4, 6]");
    refused("rg3", &odd, "5 channels");
    refused("rg10_inner", &deep, "model.language_model.layers.2.");
    refused("wgkv", &odd, "5 channels");
}

static size_t load(const char *name, unsigned char *out)
{
    char path[4096];
    FILE *f = fopen(path_of(path, name, false), "rb");
    cr_assert(f != NULL);
    size_t n = fread(out, 1, MOST, f);
    fclose(f);
    return n;
}

/* rg and rg2 have the same tensor names. The model width distinguishes them, unless it equals the
 * width of keys and values. */
Test(converted, rg_and_rg2_are_told_apart)
{
    enum { SAME = 2 * H * D };
    static const struct {
        const char *name;
        int d_model;
        const char *layout, *word; /* `word` is in the error message */
    } cases[] = {{"rg2", D_MODEL, "rg2", ""},
                 {"rg2", SAME, "", "config.json"},
                 {"rg", D_MODEL, "rg", ""},
                 {"rg3", SAME, "rg3", ""}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char path[4096];
        struct kvf_diag d = {""};
        struct gates_model m = model_of(L, cases[i].d_model);
        OWNED(gates_close) struct gates *g = NULL;
        int err = gates_open(path_of(path, cases[i].name, true), &m, &g, &d);
        cr_expect(eq(int, err, *cases[i].word ? KVF_E_FORMAT : KVF_OK), "case %zu: %s", i, d.text);
        cr_expect(zero(int, strcmp(g ? gates_layout(g) : "", cases[i].layout)), "case %zu", i);
        cr_expect(strstr(d.text, cases[i].word) != NULL, "case %zu: %s", i, d.text);
    }
}

/* Without the metadata entry of converted files, the meaning of the tensors is unknown. */
Test(converted, other_files_need_metadata)
{
    size_t n;
    char path[4096];
    struct gates_model m = model_of(L, D_MODEL);
    struct kvf_diag d;
    struct gates *g = NULL;
    OWNED(mem_free) char *bytes = read_whole(path_of(path, "rg", true), &n);
    char *at = memmem(bytes, n, "\"pt\"", 4);
    cr_assert(at != NULL);
    memcpy(at, "\"np\"", 4);
    cr_expect(eq(int, try_open(bytes, n, &m, &g, &d), KVF_E_FORMAT));
    cr_expect(strstr(d.text, "kvfate.kind") != NULL, "%s", d.text);
}

/* A key in the order of the published code, rotated by its position, and in pairs of neighbours. */
static void turn_key(const double *key, int32_t pos, float *pre, float *post)
{
    for (int j = 0; j < D / 2; j++) {
        double angle = pos * pow(1e4, -2.0 * j / D), c = cos(angle), s = sin(angle);
        double a = key[j], b = key[j + D / 2];
        pre[2 * j] = (float)a;
        pre[2 * j + 1] = (float)b;
        post[2 * j] = (float)(a * c - b * s);
        post[2 * j + 1] = (float)(a * s + b * c);
    }
}

static void row_of(const struct json *list, int n, double *out)
{
    cr_assert(eq(int, json_len(list), n));
    for (int i = 0; i < n; i++)
        out[i] = json_num(json_at(list, i), NAN);
}

/* Returns the largest relative difference from the published log beta, for one token of one
 * layer. */
static double published_token(const struct gates *g, int layer, const struct json *of, int t,
                              int32_t pos)
{
    double x[D_MODEL], key[D], value[D], want[H], worst = 0;
    float in[3][H * D], width[D_MODEL], out[H];
    OWNED(mem_free) float *scratch = MEM_NEW(float, gates_scratch(g));
    row_of(json_at(json_get(of, "x"), t), D_MODEL, x);
    for (int i = 0; i < D_MODEL; i++)
        width[i] = (float)x[i];
    for (int h = 0; h < H; h++) {
        row_of(json_at(json_at(json_get(of, "k_pre"), t), h), D, key);
        row_of(json_at(json_at(json_get(of, "v"), t), h), D, value);
        turn_key(key, pos, in[0] + h * D, in[1] + h * D);
        for (int i = 0; i < D; i++)
            in[2][h * D + i] = (float)value[i];
    }
    struct gate_input one = {.x = width, .k_pre = in[0], .k_post = in[1], .v = in[2], .pos = pos};
    gates_eval(g, layer, &one, out, scratch);
    row_of(json_at(json_get(of, "log_beta"), t), H, want);
    for (int h = 0; h < H; h++)
        worst = fmax(worst, fabs(out[h] - want[h]) / fabs(want[h]));
    return worst;
}

/* Compares with the values that the attention layers of the published code compute (published.json,
 * written by tests/data/golden/tools/make_retention_golden.py). */
Test(converted, numbers_are_those_of_the_published_code)
{
    static unsigned char bytes[MOST];
    OWNED(json_free) struct json *root = NULL;
    size_t n = load("published.json", bytes);
    succeeds(json_parse((char *)bytes, n, &root, &d));
    int seen = 0;
    for (const struct json *c = json_first(json_get(root, "cases")); c; c = json_next(c), seen++) {
        const char *file = json_str(json_get(c, "file"), ""),
                   *kind = json_str(json_get(c, "kind"), "");
        const struct json *positions = json_get(c, "positions");
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(file, "."), file);
        OWNED(gates_close) struct gates *g = open_converted(name);
        cr_expect(zero(int, strcmp(gates_layout(g), kind)), "%s: %s", file, gates_layout(g));
        for (int l = 0; l < L; l++)
            for (int t = 0; t < json_len(positions); t++) {
                int32_t pos = (int32_t)json_int(json_at(positions, t), -1);
                double off = published_token(g, l, json_at(json_get(c, "layers"), l), t, pos);
                cr_expect(off < 2e-5, "%s: layer %d, token %d off by %g", file, l, t, off);
            }
    }
    cr_expect(eq(int, seen, 4));
}
