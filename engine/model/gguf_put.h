/* gguf_put.h - metadata written as it stands in a GGUF file; private to the room.
 *
 * What cannot be kept is found later in m->pairs.err. */
#ifndef KVF_ENGINE_GGUF_PUT_H
#define KVF_ENGINE_GGUF_PUT_H

#include <stdbool.h>

#include "base/buf.h"

struct gguf_put {
    struct buf pairs;
    uint64_t n;
};

void gguf_put_int(struct gguf_put *m, const char *key, int64_t v);
void gguf_put_real(struct gguf_put *m, const char *key, double v); /* as F32 */
void gguf_put_bool(struct gguf_put *m, const char *key, bool v);
void gguf_put_str(struct gguf_put *m, const char *key, const char *s, size_t n);
/* Arrays: the key and the number of elements here, the elements behind it: texts by
 * gguf_put_text, numbers by buf_le32 into pairs. */
void gguf_put_strings(struct gguf_put *m, const char *key, uint64_t n);
void gguf_put_text(struct gguf_put *m, const char *s, size_t n);
void gguf_put_ints(struct gguf_put *m, const char *key, uint64_t n);
void gguf_put_reals(struct gguf_put *m, const char *key, uint64_t n);
/* A pair of an opened file, as it stands there. */
struct pair;
void gguf_put_pair(struct gguf_put *m, const struct pair *p);
/* All of an array of bytes. */
void gguf_put_bytes(struct gguf_put *m, const char *key, const void *p, uint64_t n);
/* All of an array of bools, one byte each. */
void gguf_put_bools(struct gguf_put *m, const char *key, const bool *v, uint64_t n);

#endif
