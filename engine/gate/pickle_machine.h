/* pickle_machine.h - what the opcodes of a pickle work on; private to unpickle.c.
 *
 * Values lie in one pool and are named by their place in it; containers are chains of cells, so
 * nothing here walks into depth. */
#ifndef KVF_ENGINE_PICKLE_MACHINE_H
#define KVF_ENGINE_PICKLE_MACHINE_H

#include <stdbool.h>

#include "engine/gate/unpickle.h"

enum kind {
    V_NONE,
    V_BOOL,
    V_INT,
    V_FLOAT,
    V_TEXT,
    V_TUPLE,
    V_LIST,
    V_DICT,
    V_NAME,
    V_STORAGE,
    V_TENSOR
};

typedef uint32_t ref;       /* place of a value or a cell */
enum { NIL = 0, MARK = 1 }; /* places of no value: none, and a mark on the stack */

struct value {
    enum kind kind;
    union {
        int64_t i; /* V_BOOL, V_INT; V_NAME: enum name of unpickle.c; V_TENSOR: place in tensor */
        struct pickled_text text;
        struct {
            ref first, last, n;
        } chain; /* V_TUPLE, V_LIST, V_DICT */
        struct {
            int64_t n;
            ref key;
            enum weight_type type;
        } storage;
    } u;
};

struct cell {
    ref key, value, next; /* key is NIL but in a dict */
};

struct pickle {
    const char *path;
    const unsigned char *p;
    size_t n, at, op; /* op: offset of the opcode in work */
    struct value *value;
    struct cell *cell;
    ref *stack, *memo;
    struct pickled_tensor *tensor;
    size_t n_values, n_cells, n_stack, n_memo, n_tensors;
    size_t cap_values, cap_cells, cap_stack, cap_memo, cap_tensors;
    struct kvf_diag *d;
};

/* The sentence of a pickle that is damaged, that wants more than tensors, or that is too large;
 * the code to return. */
int pickle_bad(const struct pickle *m, const char *what);
int pickle_refuse(const struct pickle *m, const char *what);
int pickle_too_many(const struct pickle *m);

/* The first two values, NIL and MARK, or KVF_E_NOMEM. */
int pickle_init(struct pickle *m);
void pickle_finish(struct pickle *m); /* accepts one half made, or zeroed but for its input */

/* Room for one more item behind the n of a list with capacity *cap; list: address of the
 * pointer. */
int pickle_reserve(void *list, size_t n, size_t *cap, size_t size);

int pickle_push(struct pickle *m, ref v);
int pickle_push_value(struct pickle *m, const struct value *v); /* a copy, on top */
int pickle_push_int(struct pickle *m, enum kind kind, int64_t i);
int pickle_pop(struct pickle *m, ref *ret);

/* Whether there are k items on top, no mark among them. */
bool pickle_has(const struct pickle *m, size_t k);
/* Number of items above the last mark, which stays below them. */
int pickle_above_mark(const struct pickle *m, size_t *ret);
/* Moves the k topmost items into the container `to`; a dict's are key, value, ... */
int pickle_move_items(struct pickle *m, ref to, size_t k);

/* The next k <= 8 bytes, little-endian, as a number without sign. */
int pickle_number(struct pickle *m, size_t k, uint64_t *ret);

static inline bool pickle_is(const struct pickle *m, ref v, enum kind kind)
{
    return m->value[v].kind == kind;
}

#endif
