/* pickle_machine.c - see pickle_machine.h. */
#include <string.h>

#include "base/mem.h"
#include "engine/gate/pickle_machine.h"

enum { STACK_MOST = 1 << 18, VALUES_MOST = 1 << 22 };

int pickle_bad(const struct pickle *m, const char *what)
{
    return kvf_fail(m->d, KVF_E_FORMAT,
                    "%s: data.pkl is damaged or no torch file at offset %zu: "
                    "%s; fetch the file again",
                    m->path, m->op, what);
}

int pickle_refuse(const struct pickle *m, const char *what)
{
    return kvf_fail(m->d, KVF_E_FORMAT,
                    "%s: data.pkl wants %s at offset %zu; only dicts of "
                    "tensors are read and nothing is executed: save the state_dict alone",
                    m->path, what, m->op);
}

int pickle_too_many(const struct pickle *m)
{
    return kvf_fail(m->d, KVF_E_LIMIT, "%s: data.pkl has more values or tensors than the limit",
                    m->path);
}

int pickle_reserve(void *list, size_t n, size_t *cap, size_t size)
{
    void *p;
    if (n < *cap)
        return KVF_OK;
    size_t more = *cap ? 2 * *cap : 64;
    memcpy(&p, list, sizeof p);
    p = mem_grow(p, *cap, more, size);
    if (!p)
        return KVF_E_NOMEM;
    memcpy(list, &p, sizeof p);
    *cap = more;
    return KVF_OK;
}

int pickle_push(struct pickle *m, ref v)
{
    if (m->n_stack >= STACK_MOST)
        return pickle_bad(m, "the stack grows over its limit");
    int err = pickle_reserve(&m->stack, m->n_stack, &m->cap_stack, sizeof *m->stack);
    if (err)
        return err;
    m->stack[m->n_stack++] = v;
    return KVF_OK;
}

static int add_value(struct pickle *m, const struct value *v)
{
    if (m->n_values >= VALUES_MOST)
        return pickle_too_many(m);
    int err = pickle_reserve(&m->value, m->n_values, &m->cap_values, sizeof *m->value);
    if (err)
        return err;
    m->value[m->n_values++] = *v;
    return KVF_OK;
}

int pickle_init(struct pickle *m)
{
    int err = add_value(m, &(struct value){.kind = V_NONE});
    return err ? err : add_value(m, &(struct value){.kind = V_NONE});
}

void pickle_finish(struct pickle *m)
{
    mem_free(m->value);
    mem_free(m->cell);
    mem_free(m->stack);
    mem_free(m->memo);
    mem_free(m->tensor);
}

int pickle_push_value(struct pickle *m, const struct value *v)
{
    int err = add_value(m, v);
    return err ? err : pickle_push(m, (ref)(m->n_values - 1));
}

int pickle_push_int(struct pickle *m, enum kind kind, int64_t i)
{
    return pickle_push_value(m, &(struct value){.kind = kind, .u.i = i});
}

bool pickle_has(const struct pickle *m, size_t k)
{
    bool good = k <= m->n_stack;
    for (size_t i = 0; good && i < k; i++)
        good = m->stack[m->n_stack - 1 - i] != MARK;
    return good;
}

int pickle_pop(struct pickle *m, ref *ret)
{
    if (!pickle_has(m, 1))
        return pickle_bad(m, "the stack is empty");
    *ret = m->stack[--m->n_stack];
    return KVF_OK;
}

int pickle_above_mark(const struct pickle *m, size_t *ret)
{
    size_t i = m->n_stack;
    while (i > 0 && m->stack[i - 1] != MARK)
        i--;
    if (i == 0)
        return pickle_bad(m, "a mark is missing");
    *ret = m->n_stack - i;
    return KVF_OK;
}

int pickle_number(struct pickle *m, size_t k, uint64_t *ret)
{
    *ret = 0;
    if (k > m->n - m->at)
        return pickle_bad(m, "it ends within an opcode");
    for (size_t i = 0; i < k; i++)
        *ret |= (uint64_t)m->p[m->at + i] << (8 * i);
    m->at += k;
    return KVF_OK;
}

static int add_item(struct pickle *m, ref to, ref key, ref item)
{
    int err = pickle_reserve(&m->cell, m->n_cells, &m->cap_cells, sizeof *m->cell);
    if (err)
        return err;
    ref at = (ref)m->n_cells++;
    struct value *v = &m->value[to];
    m->cell[at] = (struct cell){key, item, NIL};
    if (v->u.chain.n++)
        m->cell[v->u.chain.last].next = at;
    else
        v->u.chain.first = at;
    v->u.chain.last = at;
    return KVF_OK;
}

int pickle_move_items(struct pickle *m, ref to, size_t k)
{
    bool dict = m->value[to].kind == V_DICT;
    const ref *item = m->stack + m->n_stack - k;
    if (dict && k % 2)
        return pickle_bad(m, "a key has no value");
    for (size_t i = 0; i < k; i += dict ? 2 : 1) {
        int err = add_item(m, to, dict ? item[i] : NIL, item[dict ? i + 1 : i]);
        if (err)
            return err;
    }
    m->n_stack -= k;
    return KVF_OK;
}
