/* file.h - shared by the suites of gate files: files in memory, and opening them in every way that
 * a session does. */
#ifndef KVF_TESTS_GATES_FILE_H
#define KVF_TESTS_GATES_FILE_H

#include <sys/mman.h>

#include "base/buf.h"
#include "engine/gate/gate.h"
#include "tests/suite.h"

static inline const struct kernels *reference(void)
{
    static struct kernels k;
    kernels_init(&k, 0);
    return &k;
}

/* Writes a file from a header and the data after it; the header is padded with spaces. */
static inline void put_file(struct buf *out, const char *header, const void *data, size_t n)
{
    size_t len = strlen(header), fill = (8 - len % 8) % 8;
    buf_clear(out);
    buf_le64(out, len + fill);
    buf_add(out, header, len);
    buf_add(out, "       ", fill);
    buf_add(out, data, n);
    cr_assert(zero(int, out->err));
}

/* A file that is built tensor by tensor. */
struct maker {
    struct buf header, data, file;
};

static inline void start(struct maker *m, const char *meta)
{
    buf_clear(&m->header);
    buf_clear(&m->data);
    buf_printf(&m->header, "{\"__metadata__\": {%s}", meta);
}

/* shape is JSON, for example "[1, 2]". */
static inline void tensor(struct maker *m, const char *name, const char *shape, const float *v,
                          size_t n)
{
    buf_printf(&m->header,
               ", \"%s\": {\"dtype\": \"F32\", \"shape\": %s, \"data_offsets\": "
               "[%zu, %zu]}",
               name, shape, m->data.len, m->data.len + 4 * n);
    buf_add(&m->data, v, 4 * n);
}

static inline const struct buf *finish(struct maker *m)
{
    buf_str(&m->header, "}");
    put_file(&m->file, m->header.data, m->data.data, m->data.len);
    return &m->file;
}

static inline void end(struct maker *m)
{
    buf_finish(&m->header);
    buf_finish(&m->data);
    buf_finish(&m->file);
}

/* Calls every function on an open file. Only scratch and outputs may be written. */
static inline void use(const struct gates *g, const struct gates_model *m)
{
    enum { MOST = 64 };
    float in[MOST], out[MOST];
    size_t n = gates_scratch(g);
    OWNED(mem_free) float *scratch = MEM_NEW(float, n + 1);
    scratch[n] = 42;
    for (int i = 0; i < MOST; i++)
        in[i] = 0.25f * (float)(i % 7 - 3);
    struct gate_input x = {in, in, in, in, in, 0};
    for (int l = 0; l < m->n_layers; l++)
        for (int h = 0; h < m->n_kv_heads; h++) {
            if (gates_kind(g) == GATE_HEADS) {
                gates_alpha(g, l, h);
            } else if (gates_kind(g) != GATE_BLOCKS) {
                gates_eval(g, l, &x, out, scratch);
            } else {
                gates_block_key(g, l, h, in, in, in, 64, out, scratch);
                gates_block_query(g, l, h, in, 65, out, scratch);
                gates_block_logit(g, out, out);
            }
        }
    cr_expect(eq(flt, scratch[n], 42));
    cr_expect(eq(sz, strlen(gates_hash(g)), 32));
}

/* Opens the gates. Ends the test if the result violates the contract. d contains the message, or
 * "". */
static inline int try_open(const void *bytes, size_t n, const struct gates_model *m,
                           struct gates **ret, struct kvf_diag *d)
{
    char path[64];
    int fd = memfd_create("gates", 0);
    cr_assert(fd >= 0 && write(fd, bytes, n) == (ssize_t)n);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    d->text[0] = 0;
    *ret = NULL;
    int err = gates_open(path, m, ret, d);
    close(fd);
    cr_assert(err ? !*ret : *ret != NULL);
    if (err) {
        cr_assert(strncmp(d->text, path, strlen(path)) == 0, "no path in: %s", d->text);
        cr_assert(strlen(d->text) > strlen(path) + 12 && !strchr(d->text, '\n'), "%s", d->text);
    }
    return err;
}

/* Opens and uses the gates; returns the code of the open. */
static inline int try_use(const void *bytes, size_t n, const struct gates_model *m,
                          struct kvf_diag *d)
{
    OWNED(gates_close) struct gates *g = NULL;
    int err = try_open(bytes, n, m, &g, d);
    if (!err)
        use(g, m);
    return err;
}

#endif
