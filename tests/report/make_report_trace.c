/* make_report_trace.c - writes traces of any size for tests of the report, without a model.
 *
 *   usage: make_report_trace OUT.kvf T L H G SEED KINDS [TEXTS]
 *
 * KINDS, letters: e evictions, g retention gates, u last uses, masses and entropies, s records of a
 * shadow cache, d dilution, x every entry is evicted at the step after its creation, b a budget of
 * 1000 entries instead of 64, h the method h2o instead of an unknown one. TEXTS: texts of the first
 * tokens, each a length (u32, little-endian) and as many bytes; the other texts are words. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvf/schema.h>
#include <kvf/trace.h>
#include "tests/scoped.h"

static uint32_t rng;
static uint32_t T;
static int L, H, G;
static struct kvf_column columns[64];
static int n_columns;

static double rnd(void) /* in [0, 1) */
{
    rng = rng * 1664525u + 1013904223u;
    return (rng >> 8) / 16777216.0;
}

static void add(const char *name, int dtype, int space, int axis, int flags)
{
    struct kvf_column *c = &columns[n_columns++];
    snprintf(c->name, sizeof c->name, "%s", name);
    c->dtype = (uint8_t)dtype;
    c->space = (uint8_t)space;
    c->axis = (uint8_t)axis;
    c->flags = (uint8_t)flags;
}

static void declare(const char *kinds)
{
    int age = T < 65535 ? KVF_U16 : KVF_U32, last = KVF_COL_SNAPSHOT | KVF_COL_AGE;
    add("tokens.id", KVF_I32, KVF_SPACE_RUN, KVF_AXIS_TOKEN, 0);
    add("tokens.role", KVF_U8, KVF_SPACE_RUN, KVF_AXIS_TOKEN, 0);
    if (strpbrk(kinds, "ex")) {
        add("evict_step", KVF_U32, KVF_SPACE_KV, KVF_AXIS_TOKEN, 0);
        add("evict_reason", KVF_U8, KVF_SPACE_KV, KVF_AXIS_TOKEN, 0);
        add("evict_score", KVF_F32, KVF_SPACE_KV, KVF_AXIS_TOKEN, 0);
        add("evict_margin", KVF_F32, KVF_SPACE_KV, KVF_AXIS_TOKEN, 0);
        add("evict_tie", KVF_U8, KVF_SPACE_KV, KVF_AXIS_TOKEN, 0);
    }
    if (strchr(kinds, 'g'))
        add("log_beta", KVF_F32, KVF_SPACE_KV, KVF_AXIS_TOKEN, 0);
    if (strchr(kinds, 'u')) {
#define AGE(c) add("last_selected." #c, age, KVF_SPACE_QUERY, KVF_AXIS_TOKEN, last);
        KVF_CRITERIA_MAP(AGE)
        add("mass.sum", KVF_F32, KVF_SPACE_QUERY, KVF_AXIS_TOKEN, KVF_COL_SNAPSHOT);
        add("mass.max", KVF_F32, KVF_SPACE_QUERY, KVF_AXIS_TOKEN, KVF_COL_SNAPSHOT);
        add("entropy", KVF_F32, KVF_SPACE_QUERY, KVF_AXIS_STEP, 0);
    }
    if (strchr(kinds, 's')) {
        add("shadow.ghost_hits", KVF_U32, KVF_SPACE_QUERY, KVF_AXIS_TOKEN, KVF_COL_SNAPSHOT);
        add("shadow.first_hit", KVF_U32, KVF_SPACE_QUERY, KVF_AXIS_TOKEN, KVF_COL_SNAPSHOT);
        add("shadow.kept_mass", KVF_F32, KVF_SPACE_QUERY, KVF_AXIS_STEP, 0);
        add("shadow.oracle_mass", KVF_F32, KVF_SPACE_QUERY, KVF_AXIS_STEP, 0);
        add("shadow.kl", KVF_F32, KVF_SPACE_RUN, KVF_AXIS_STEP, 0);
    }
    if (strchr(kinds, 'd')) {
        add("useful.top64", KVF_F32, KVF_SPACE_QUERY, KVF_AXIS_STEP, 0);
        add("dilution.top64", KVF_F32, KVF_SPACE_QUERY, KVF_AXIS_STEP, 0);
        add("size.top64", KVF_U16, KVF_SPACE_QUERY, KVF_AXIS_STEP, 0);
        for (int k = 0; k < 16; k++) {
            char name[32];
            snprintf(name, sizeof name, "near.all.%d", k);
            add(name, KVF_U16, KVF_SPACE_QUERY, KVF_AXIS_STEP, 0);
        }
    }
}

/* Returns how often a shadow's queries hit an entry that was evicted at `end`. */
static uint32_t hits_of(uint32_t i, uint32_t end)
{
    return end < T && (i * 7 + end) % 3 == 0 ? i % 4 + 1 : 0;
}

static double shadow_value(const char *name, uint32_t i, uint32_t end, double u)
{
    if (strcmp(name, "ghost_hits") == 0)
        return hits_of(i, end);
    if (strcmp(name, "first_hit") == 0)
        return hits_of(i, end) ? end + i % (T - end) : UINT32_MAX;
    return strcmp(name, "kl") == 0 ? u * 0.2 : 0.9 + 0.1 * u;
}

/* Returns value i of a column; end: of the entry, UINT32_MAX = alive. */
static double value(const char *name, uint32_t i, uint32_t end, double scale)
{
    double left = (double)(T - i), u = rnd();
    if (strncmp(name, "shadow.", 7) == 0)
        return shadow_value(name + 7, i, end, u);
    if (strncmp(name, "near.", 5) == 0 || strcmp(name, "size.top64") == 0)
        return 64;
    if (strcmp(name, "useful.top64") == 0 || strcmp(name, "dilution.top64") == 0)
        return name[0] == 'd' ? 0.1 * scale : 1 - 0.1 * scale;
    if (strcmp(name, "tokens.id") == 0)
        return (i * 7919u) % 49152u;
    if (strcmp(name, "tokens.role") == 0)
        return i >= T - T / 4;
    if (strcmp(name, "evict_step") == 0)
        return end;
    if (strcmp(name, "evict_reason") == 0)
        return end == KVF_ALIVE ? KVF_REASON_NONE : KVF_REASON_BUDGET;
    if (strcmp(name, "evict_tie") == 0)
        return u < 0.01;
    if (strncmp(name, "evict_", 6) == 0)
        return end == KVF_ALIVE ? NAN : u * 3 - (name[6] == 's');
    if (strcmp(name, "log_beta") == 0)
        return -exp(-12 * u) * scale;
    if (strncmp(name, "last_selected", 13) == 0)
        return u < 0.05 ? UINT32_MAX : floor(left * pow(rnd(), 3));
    return strcmp(name, "entropy") == 0    ? u * 3
           : strcmp(name, "mass.max") == 0 ? 0.01 + 0.5 * u
                                           : 0.6 + u;
}

static void store(const struct kvf_column *c, double v, uint32_t i, unsigned char *out)
{
    size_t width = kvf_dtype_size((enum kvf_dtype)c->dtype);
    float f = (float)v;
    uint64_t whole = c->dtype == KVF_F32 ? 0 : (uint64_t)v;
    memcpy(out + i * width, c->dtype == KVF_F32 ? (const void *)&f : (const void *)&whole, width);
}

static int write_columns(struct kvf_writer *w, const char *kinds)
{
    OWNED(free) unsigned char *out = calloc(T + 1, 8);
    int err = out ? KVF_OK : KVF_E_NOMEM;
    uint32_t start = rng;
    for (int k = 0; !err && T && k < n_columns; k++) {
        const struct kvf_column *c = &columns[k];
        int heads = c->space == KVF_SPACE_KV ? H : c->space == KVF_SPACE_QUERY ? G : 1;
        for (int l = 0; !err && l < (c->space == KVF_SPACE_RUN ? 1 : L); l++)
            for (int h = 0; !err && h < heads; h++) {
                int kv = heads > H ? h / (G / H) : h;
                uint32_t of_ends = start + 31u * (uint32_t)(l * H + kv);
                double scale = 0.05 + 2.0 * ((l * 7 + h * 3) % 11) / 11;
                rng = start + 977u * (uint32_t)(k + 1) + 131071u * (uint32_t)(l * heads + h);
                for (uint32_t i = 0; i < T; i++) {
                    of_ends = of_ends * 1664525u + 1013904223u;
                    double life = 1 - log(1 - (of_ends >> 8) / 16777217.0) * T * scale / 4;
                    uint32_t end = strchr(kinds, 'x') ? i + 1
                                   : i + life > T     ? KVF_ALIVE
                                                      : i + (uint32_t)life;
                    store(c, value(c->name, i, end, scale), i, out);
                }
                err = kvf_write_chunk(w, k, l, h, 1, 0, T, c->flags & KVF_COL_SNAPSHOT ? 1 : 0,
                                      out);
            }
    }
    return err;
}

static int write_texts(struct kvf_writer *w, const char *path)
{
    static const char *const words[] = {" the", " cache",  " of",   " a", " caravan", ",",
                                        " 40",  " camels", " left", ".",  "\n",       " salt"};
    FILE *f = path ? fopen(path, "rb") : NULL;
    OWNED(free) char *bytes = calloc(T + 1u, 16);
    uint32_t *end = calloc(T + 1, sizeof *end), n = 0;
    if (path && f) {
        bytes = realloc(bytes, (1u << 20) + 16u * T);
        for (uint32_t i = 0, size; i < T && fread(&size, 4, 1, f) == 1 && size < 65536; i++) {
            n += (uint32_t)fread(bytes + n, 1, size, f);
            end[i] = n;
        }
        fclose(f);
    }
    for (uint32_t i = 0; i < T; i++) {
        const char *word = words[(i * 5 + i / 7) % 12];
        if (end[i] || (path && i == 0))
            continue;
        memcpy(bytes + n, word, strlen(word));
        end[i] = n += (uint32_t)strlen(word);
    }
    int err = T ? kvf_write_token_bytes(w, 0, T, end, bytes) : KVF_OK;
    free(end);
    return err;
}

int main(int argc, char **argv)
{
    static uint16_t kv[KVF_MAX_LAYERS], query[KVF_MAX_LAYERS];
    struct kvf_writer *w = NULL;
    struct kvf_diag d = {""};
    char meta[512];
    if (argc < 8)
        return 2;
    T = (uint32_t)atoi(argv[2]);
    L = atoi(argv[3]);
    H = atoi(argv[4]);
    G = atoi(argv[5]);
    rng = (uint32_t)atoi(argv[6]);
    for (int l = 0; l < L && l < KVF_MAX_LAYERS; l++) {
        kv[l] = (uint16_t)H;
        query[l] = (uint16_t)G;
    }
    declare(argv[7]);
    snprintf(meta, sizeof meta,
             "{\"kvf\":{\"version\":\"0\"},\"model\":{\"name\":\"made up\",\"hash\":"
             "\"00\",\"query_heads\":%d,\"kv_heads\":%d},\"run\":{\"prompt_tokens\":%u},\"method\":"
             "{\"name\":\"%s\",\"budget\":%d}}",
             G, H, T - T / 4, strchr(argv[7], 'h') ? "h2o" : "made-up",
             strchr(argv[7], 'b') ? 1000 : 64);
    struct kvf_shape shape = {L, kv, query};
    int err = kvf_writer_open(argv[1], meta, &shape, columns, n_columns,
                              &(struct kvf_writer_options){.existing = KVF_OVERWRITE}, &w, &d);
    if (!err)
        err = write_texts(w, argc > 8 ? argv[8] : NULL);
    if (!err)
        err = write_columns(w, argv[7]);
    if (!err)
        err = kvf_writer_commit(w, 1, T);
    if (!err)
        err = kvf_writer_close(w, &d);
    if (err)
        fprintf(stderr, "make_report_trace: %s %s\n", kvf_strerror(err), d.text);
    return err != KVF_OK;
}
