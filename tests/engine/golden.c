/* golden.c - models, golden files and logits for the engine's tests; see golden.h. */
#include "golden.h"
#include "tests/suite.h"

const char *cached_model(const char *name)
{
    static char path[4096];
    const char *dir = getenv("KVFATE_CACHE"), *home = getenv("HOME");
    if (dir)
        snprintf(path, sizeof path, "%s/%s", dir, name);
    else
        snprintf(path, sizeof path, "%s/.cache/kvfate/%s", home ? home : "", name);
    if (access(path, R_OK) == 0)
        return path;
    fprintf(stderr, "skipped: no model at %s\n", path);
    return NULL;
}

const char *default_model(void)
{
    return cached_model("SmolLM2-135M-Instruct.Q4_1.gguf");
}

static const char *in_folder(const char *variable, const char *name)
{
    static char path[4096];
    const char *dir = getenv(variable);
    cr_assert(dir != NULL, "%s is not set: run the test through meson", variable);
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

const char *golden_path(const char *name)
{
    return in_folder("KVF_GOLDEN", name);
}

static const char *numbered(const char *stem, int i)
{
    char name[32];
    snprintf(name, sizeof name, "%s%d.gguf", stem, i);
    return in_folder("KVF_TINY", name);
}

const char *tiny_path(int i)
{
    return numbered("tiny", i);
}

struct gates *open_gates(const struct engine *e, const char *name)
{
    const struct gates_model model = gates_model_from(&e->config, NULL, &e->kernels);
    const char *folder = getenv("KVF_TINY_GATES");
    struct kvf_diag d = {""};
    struct gates *g = NULL;
    char path[4096];
    snprintf(path, sizeof path, "%s/tiny_%s.safetensors", folder ? folder : ".", name);
    cr_assert(gates_open(path, &model, &g, &d) == KVF_OK, "%s", d.text);
    return g;
}

const char *qwen_path(int i)
{
    return numbered("qwen", i);
}

const char *family_path(int i)
{
    return numbered("family", i);
}

const char *vocabulary_path(const char *name)
{
    return in_folder("KVF_VOCABULARIES", name);
}

struct json *golden_json(const char *name)
{
    struct kvf_diag d = {""};
    struct json *root = NULL;
    size_t n;
    OWNED(mem_free) char *text = read_whole(golden_path(name), &n);
    cr_assert(json_parse(text, n, &root, &d) == KVF_OK, "%s: %s", name, d.text);
    return root;
}

int32_t *golden_ids(const struct json *array, int *ret_n)
{
    int n = json_len(array), i = 0;
    int32_t *ids = MEM_NEW(int32_t, (size_t)n);
    for (const struct json *x = json_first(array); x; x = json_next(x))
        ids[i++] = (int32_t)json_int(x, -1);
    *ret_n = n;
    return ids;
}

struct engine *open_model(const char *path, bool exact, int threads)
{
    return open_scaled(path, NULL, exact, threads);
}

struct engine *open_words(const char *path, int threads)
{
    struct kvf_diag d = {""};
    struct engine *e = NULL;
    struct engine_options opt = {
        .words = true, .n_threads = threads, .cpu_flags = cpu_flags_detect()};
    cr_assert(engine_open(path, &opt, &e, &d) == KVF_OK, "%s", d.text);
    return e;
}

struct engine *open_scaled(const char *path, const char *rope_scale, bool exact, int threads)
{
    struct kvf_diag d = {""};
    struct engine *e = NULL;
    struct engine_options opt = {
        .exact = exact, .n_threads = threads, .cpu_flags = cpu_flags_detect()};
    if (rope_scale)
        cr_assert(rope_scale_parse(rope_scale, &opt.rope_scale, &d) == KVF_OK, "%s", d.text);
    cr_assert(engine_open(path, &opt, &e, &d) == KVF_OK, "%s", d.text);
    return e;
}

struct choice choose(const char *method, int budget)
{
    struct kvf_diag d = {""};
    struct choice c;
    cr_assert(method_parse(method, budget, &c.row, &c.params, &d) == KVF_OK, "%s", d.text);
    return c;
}

struct session *open_session(struct engine *e, const struct choice *c, int cap, int chunk,
                             struct recorder *rec)
{
    struct kvf_diag d = {""};
    struct session *s = NULL;
    enum kv_type type = e->i8_activations ? KV_I16 : KV_F16; /* covers both types */
    struct session_options opt = {.method = c ? &c->row : NULL,
                                  .params = c ? &c->params : NULL,
                                  .kv_type = e->exact ? KV_F32 : type,
                                  .cap = cap,
                                  .chunk = chunk,
                                  .recorder = rec};
    cr_assert(session_create(e, &opt, &s, &d) == KVF_OK, "%s", d.text);
    return s;
}

static struct {
    rmsnorm_fn norm;
    const float *last_weight;
    float *rows;
    int n;
} caught;

static void catching_norm(float *out, const float *x, const float *w, int T, int C, float eps)
{
    caught.norm(out, x, w, T, C, eps);
    if (w != caught.last_weight)
        return;
    memcpy(caught.rows + (size_t)caught.n * (size_t)C, out, (size_t)T * (size_t)C * sizeof *out);
    caught.n += T;
}

/* Multiplies T positions with the output head, using the kernels of the session. Each row has the
 * same bits as when computed separately. */
static void head_rows(struct engine *e, const float *x, int T, float *padded)
{
    const struct packed *w = &e->weights->head;
    size_t ld = (size_t)w->n_panels * PANEL, blocks = (size_t)T * (size_t)w->n_blocks;
    if (w->n_blocks) {
        struct qrows q = {.q = mem_alloc((size_t)T * (size_t)w->K, 2),
                          .scale = MEM_NEW(float, blocks),
                          .sum = MEM_NEW(float, blocks),
                          .half = MEM_NEW(float, blocks * 2),
                          .K = w->K,
                          .hi_alone = e->i8_activations,
                          .lowest = w->lowest};
        e->kernels.quant_rows(&q, x, T, w->K);
        e->kernels.matmul_q(padded, ld, &q, T, w, 0, w->n_panels);
        mem_free(q.q);
        mem_free(q.scale);
        mem_free(q.sum);
        mem_free(q.half);
    } else {
        e->kernels.matmul_f(padded, ld, x, (size_t)w->K, T, w, 0, w->n_panels);
    }
}

enum { HEAD_ROWS = 16 };
float *all_logits(struct engine *e, enum kv_type kv, const int32_t *ids, int n)
{
    struct kvf_diag d = {""};
    size_t V = (size_t)e->config.vocab, C = (size_t)e->config.d_model;
    size_t ld = (V + PANEL - 1) / PANEL * PANEL;
    struct session_options opt = {.kv_type = kv, .cap = n};
    OWNED(session_destroy) struct session *s = NULL;
    caught.norm = e->kernels.rmsnorm;
    caught.last_weight = e->weights->out_norm;
    caught.rows = MEM_NEW(float, (size_t)n *C);
    caught.n = 0;
    e->kernels.rmsnorm = catching_norm;
    cr_assert(session_create(e, &opt, &s, &d) == KVF_OK, "%s", d.text);
    cr_assert(session_prompt(s, ids, n, NULL, NULL) == KVF_OK);
    e->kernels.rmsnorm = caught.norm;
    cr_assert(caught.n == n);
    float *out = MEM_NEW(float, (size_t)n *V), *padded = MEM_NEW(float, HEAD_ROWS *ld);
    for (size_t t = 0; t < (size_t)n; t++) {
        int left = n - (int)t;
        if (t % HEAD_ROWS == 0)
            head_rows(e, caught.rows + t * C, left < HEAD_ROWS ? left : HEAD_ROWS, padded);
        memcpy(out + t * V, padded + t % HEAD_ROWS * ld, V * sizeof *out);
        if (e->config.logit_cap > 0)
            e->kernels.soft_cap(out + t * V, (int)V, e->config.logit_cap);
    }
    cr_assert(memcmp(out + (size_t)(n - 1) * V, session_logits(s), V * sizeof *out) == 0,
              "the session's own logits differ from those rebuilt");
    mem_free(padded);
    mem_free(caught.rows);
    return out;
}

double log_sum_exp(const float *row, int n)
{
    double max = -INFINITY, sum = 0;
    for (int i = 0; i < n; i++)
        max = fmax(max, (double)row[i]);
    for (int i = 0; i < n; i++)
        sum += exp((double)row[i] - max);
    return max + log(sum);
}

int argmax(const float *row, int n)
{
    int best = 0;
    for (int i = 1; i < n; i++)
        if (row[i] > row[best])
            best = i;
    return best;
}
