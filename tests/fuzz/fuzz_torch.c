/* A torch file: its checksums mended, so that changes reach the reader, then opened
 * with and without a model. */
#include <string.h>

#include "base/mem.h"
#include "engine/gate/gate.h"
#include "fuzz.h"

enum { L = 2, D_MODEL = 6, G = 4, H = 2, D = 4 }; /* as tests/data/make_torch_gates.py */

static size_t get(const uint8_t *p, int n)
{
    size_t v = 0;
    for (int i = n - 1; i >= 0; i--)
        v = v << 8 | p[i];
    return v;
}

static void put32(uint8_t *p, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        p[i] = (uint8_t)(v >> (8 * i));
}

static uint32_t crc32_of(const uint8_t *p, size_t n)
{
    uint32_t c = UINT32_MAX;
    for (size_t i = 0; i < n; i++) {
        c ^= p[i];
        for (int k = 0; k < 8; k++)
            c = c >> 1 ^ (c & 1 ? 0xedb88320u : 0);
    }
    return ~c;
}

/* In the record of the directory at p[at], the local header (where it has one: bit 3
 * of the flags moves it behind the data) and what follows the data. */
static void mend(uint8_t *p, size_t n, size_t at)
{
    size_t size = get(p + at + 20, 4), local = get(p + at + 42, 4);
    if (local > n - 30)
        return;
    size_t data = local + 30 + get(p + local + 26, 2) + get(p + local + 28, 2);
    if (data > n || size > n - data)
        return;
    uint32_t crc = crc32_of(p + data, size);
    put32(p + at + 16, crc);
    if (!(p[local + 6] & 8))
        put32(p + local + 14, crc);
    else if (n - data - size >= 8 && memcmp(p + data + size, "PK\7\10", 4) == 0)
        put32(p + data + size + 4, crc);
}

static void use(const struct gates *g)
{
    static const float in[(G + 2 * H) * D] = {1, -2, 3, -0.5f, 0.25f, 0, 1e-3f, 7, -1, 2};
    struct gate_input x = {in, in, in, in, in, 5};
    float out[H], *scratch = MEM_NEW(float, gates_scratch(g));
    MUST(scratch && strlen(gates_hash(g)) == 32);
    for (int layer = 0; layer < L; layer++) {
        gates_eval(g, layer, &x, out, scratch);
        for (int h = 0; h < H; h++)
            MUST(!(out[h] > 1) && !(gates_kind(g) == GATE_WRITE && out[h] < 0));
    }
    mem_free(scratch);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static struct kernels kernels;
    char path[64];
    if (!kernels.matmul_f)
        kernels_init(&kernels, cpu_flags_detect());
    const struct gates_model m = {L, D_MODEL, G, H, D, 1e-5f, 1e4, NULL, &kernels};
    struct kvf_diag d = {""};
    struct gates *g = NULL, *alone = NULL;
    if (n < 46 || memcmp(data, "PK\3\4", 4) != 0)
        return 0; /* other containers: fuzz_gates */
    uint8_t *p = malloc(n);
    MUST(p);
    memcpy(p, data, n);
    for (size_t at = 0; at <= n - 46; at++)
        if (memcmp(p + at, "PK\1\2", 4) == 0)
            mend(p, n, at);
    int fd = memory_file(p, n, path);
    int err = gates_open(path, &m, &g, &d);
    MUST((err == KVF_OK) == (g != NULL) && (!err || err == KVF_E_NOMEM || d.text[0]));
    err = gates_read(path, &alone, &d);
    MUST((err == KVF_OK) == (alone != NULL) && !(g && !alone));
    if (g)
        use(g);
    gates_close(g);
    gates_close(alone);
    close(fd);
    free(p);
    return 0;
}
