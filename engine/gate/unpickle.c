/* unpickle.c - see unpickle.h.  Values lie in one pool and are named by their place
 * in it; containers are chains of cells, so nothing here walks into depth. */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
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
static const char *const kind_names[] = {"None",   "a bool",    "an int",  "a float",
                                         "a str",  "a tuple",   "a list",  "a dict",
                                         "a name", "a storage", "a tensor"};

typedef uint32_t ref; /* place of a value or a cell */
enum { NIL = 0, MARK = 1, FIRST = 2, STACK_MOST = 1 << 18, VALUES_MOST = 1 << 22 };

struct value {
    enum kind kind;
    union {
        int64_t i; /* V_BOOL, V_INT; V_NAME: enum name; V_TENSOR: place in machine.tensor */
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

enum name {
    N_ORDERED_DICT,
    N_TENSOR,
    N_REBUILT_PARAMETER,
    N_PARAMETER,
    N_F32,
    N_F16,
    N_BF16,
    N_NAMES
};
static const struct {
    const char *module, *name;
} names[N_NAMES] = {[N_ORDERED_DICT] = {"collections", "OrderedDict"},
                    [N_TENSOR] = {"torch._utils", "_rebuild_tensor_v2"},
                    [N_REBUILT_PARAMETER] = {"torch._utils", "_rebuild_parameter"},
                    [N_PARAMETER] = {"torch.nn.parameter", "Parameter"},
                    [N_F32] = {"torch", "FloatStorage"},
                    [N_F16] = {"torch", "HalfStorage"},
                    [N_BF16] = {"torch", "BFloat16Storage"}};

struct machine {
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

static int bad(const struct machine *m, const char *what)
{
    return kvf_fail(m->d, KVF_E_FORMAT,
                    "%s: data.pkl is damaged or no torch file at offset %zu: "
                    "%s; fetch the file again",
                    m->path, m->op, what);
}

static int refuse(const struct machine *m, const char *what)
{
    return kvf_fail(m->d, KVF_E_FORMAT,
                    "%s: data.pkl wants %s at offset %zu; only dicts of "
                    "tensors are read and nothing is executed: save the state_dict alone",
                    m->path, what, m->op);
}

static int too_many(const struct machine *m)
{
    return kvf_fail(m->d, KVF_E_LIMIT, "%s: data.pkl has more values or tensors than the limit",
                    m->path);
}

/* The text as it may be shown. */
static const char *shown(char out[64], struct pickled_text t)
{
    size_t n = t.n < 63 ? t.n : 63;
    for (size_t i = 0; i < n; i++)
        out[i] = t.at[i] > 0x20 && t.at[i] < 0x7f ? t.at[i] : '?';
    out[n] = 0;
    return out;
}

/* Room for one more item behind n of them. */
static int reserve(void *list, size_t n, size_t *cap, size_t size)
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

static int push(struct machine *m, ref v)
{
    if (m->n_stack >= STACK_MOST)
        return bad(m, "the stack grows over its limit");
    int err = reserve(&m->stack, m->n_stack, &m->cap_stack, sizeof *m->stack);
    if (!err)
        m->stack[m->n_stack++] = v;
    return err;
}

static int add_value(struct machine *m, const struct value *v, ref *ret)
{
    if (m->n_values >= VALUES_MOST)
        return too_many(m);
    int err = reserve(&m->value, m->n_values, &m->cap_values, sizeof *m->value);
    if (err)
        return err;
    *ret = (ref)m->n_values;
    m->value[m->n_values++] = *v;
    return KVF_OK;
}

static int push_value(struct machine *m, const struct value *v)
{
    ref at = 0;
    int err = add_value(m, v, &at);
    return err ? err : push(m, at);
}

static int push_int(struct machine *m, enum kind kind, int64_t i)
{
    return push_value(m, &(struct value){.kind = kind, .u.i = i});
}

/* Whether there are k items on top, no mark among them. */
static bool has_items(const struct machine *m, size_t k)
{
    bool good = k <= m->n_stack;
    for (size_t i = 0; good && i < k; i++)
        good = m->stack[m->n_stack - 1 - i] != MARK;
    return good;
}

static int pop(struct machine *m, ref *ret)
{
    if (!has_items(m, 1))
        return bad(m, "the stack is empty");
    *ret = m->stack[--m->n_stack];
    return KVF_OK;
}

/* Number of items above the last mark, which stays below them. */
static int above_mark(const struct machine *m, size_t *ret)
{
    size_t i = m->n_stack;
    while (i > 0 && m->stack[i - 1] != MARK)
        i--;
    if (i == 0)
        return bad(m, "a mark is missing");
    *ret = m->n_stack - i;
    return KVF_OK;
}

/* k bytes, little-endian, as a number without sign. */
static int take_number(struct machine *m, size_t k, uint64_t *ret)
{
    *ret = 0;
    if (k > m->n - m->at)
        return bad(m, "it ends within an opcode");
    for (size_t i = 0; i < k; i++)
        *ret |= (uint64_t)m->p[m->at + i] << (8 * i);
    m->at += k;
    return KVF_OK;
}

static int op_int(struct machine *m, size_t k, bool negative)
{
    uint64_t v;
    int err = take_number(m, k, &v);
    if (err)
        return err;
    if (negative && k > 0 && k < 8 && v >> (8 * k - 1))
        v |= UINT64_MAX << (8 * k);
    int64_t i;
    memcpy(&i, &v, sizeof i);
    return push_int(m, V_INT, i);
}

static int op_long(struct machine *m)
{
    uint64_t k;
    int err = take_number(m, 1, &k);
    return err ? err : k > 8 ? bad(m, "an integer has over 64 bits") : op_int(m, (size_t)k, true);
}

static int op_float(struct machine *m)
{
    uint64_t unused; /* no float says anything about a tensor */
    int err = take_number(m, 8, &unused);
    return err ? err : push_int(m, V_FLOAT, 0);
}

static int op_text(struct machine *m, size_t k)
{
    uint64_t n;
    int err = take_number(m, k, &n);
    if (!err && n > m->n - m->at)
        err = bad(m, "a text is longer than the rest");
    if (err)
        return err;
    struct pickled_text t = {(const char *)m->p + m->at, (size_t)n};
    m->at += (size_t)n;
    return push_value(m, &(struct value){.kind = V_TEXT, .u.text = t});
}

static int add_item(struct machine *m, ref to, ref key, ref item)
{
    int err = reserve(&m->cell, m->n_cells, &m->cap_cells, sizeof *m->cell);
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

/* Moves the k topmost items into the container `to`; a dict's are key, value, ... */
static int add_items(struct machine *m, ref to, size_t k)
{
    bool dict = m->value[to].kind == V_DICT;
    const ref *item = m->stack + m->n_stack - k;
    int err = dict && k % 2 ? bad(m, "a key has no value") : KVF_OK;
    for (size_t i = 0; !err && i < k; i += dict ? 2 : 1)
        err = add_item(m, to, dict ? item[i] : NIL, item[dict ? i + 1 : i]);
    m->n_stack -= k;
    return err;
}

static int op_tuple(struct machine *m, size_t k)
{
    ref at = 0;
    if (!has_items(m, k))
        return bad(m, "the stack is empty");
    int err = add_value(m, &(struct value){.kind = V_TUPLE}, &at);
    if (!err)
        err = add_items(m, at, k);
    return err ? err : push(m, at);
}

static int op_marked_tuple(struct machine *m)
{
    size_t k = 0;
    int err = above_mark(m, &k);
    if (!err)
        err = op_tuple(m, k);
    if (!err) /* it takes the place of the mark */
        m->stack[m->n_stack - 2] = m->stack[m->n_stack - 1];
    m->n_stack -= !err;
    return err;
}

/* One item (or pair) or all above the mark, into the list or dict below. */
static int op_add(struct machine *m, enum kind kind, bool marked)
{
    size_t k = kind == V_DICT ? 2 : 1, marks = marked;
    int err = marked ? above_mark(m, &k) : KVF_OK;
    if (!err && (k + marks >= m->n_stack || !has_items(m, k)))
        err = bad(m, "the stack is empty");
    ref to = err ? NIL : m->stack[m->n_stack - 1 - k - marks];
    if (!err && (to == MARK || m->value[to].kind != kind))
        err = bad(m, kind == V_DICT ? "members go into no dict" : "items go into no list");
    if (!err)
        err = add_items(m, to, k);
    if (!err)
        m->n_stack -= marks;
    return err;
}

static int op_put(struct machine *m, size_t k)
{
    uint64_t i = m->n_memo;
    int err = k ? take_number(m, k, &i) : KVF_OK;
    if (!err && i > m->n_memo) /* picklers number them from 0 on */
        err = bad(m, "a number of the memo leaves a gap");
    if (!err && !has_items(m, 1))
        err = bad(m, "the stack is empty");
    if (!err)
        err = reserve(&m->memo, m->n_memo, &m->cap_memo, sizeof *m->memo);
    if (err)
        return err;
    m->memo[i] = m->stack[m->n_stack - 1];
    m->n_memo += i == m->n_memo;
    return KVF_OK;
}

static int op_get(struct machine *m, size_t k)
{
    uint64_t i;
    int err = take_number(m, k, &i);
    if (!err && i >= m->n_memo)
        err = bad(m, "a number of the memo is not set");
    return err ? err : push(m, m->memo[i]);
}

static bool is_text(struct pickled_text t, const char *s)
{
    return t.n == strlen(s) && memcmp(t.at, s, t.n) == 0;
}

static int push_name(struct machine *m, struct pickled_text module, struct pickled_text name)
{
    char a[64], b[64], what[160];
    for (int i = 0; i < N_NAMES; i++)
        if (is_text(module, names[i].module) && is_text(name, names[i].name))
            return push_int(m, V_NAME, i);
    snprintf(what, sizeof what, "the name %s.%s", shown(a, module), shown(b, name));
    return refuse(m, what);
}

static int take_line(struct machine *m, struct pickled_text *ret)
{
    const unsigned char *b = m->p + m->at, *end = memchr(b, '\n', m->n - m->at);
    if (!end)
        return bad(m, "a name does not end");
    *ret = (struct pickled_text){(const char *)b, (size_t)(end - b)};
    m->at += ret->n + 1;
    return KVF_OK;
}

static int op_name(struct machine *m)
{
    struct pickled_text module, name;
    int err = take_line(m, &module);
    if (!err)
        err = take_line(m, &name);
    return err ? err : push_name(m, module, name);
}

static int op_stack_name(struct machine *m)
{
    ref module = 0, name = 0;
    int err = pop(m, &name);
    if (!err)
        err = pop(m, &module);
    if (!err && (m->value[module].kind != V_TEXT || m->value[name].kind != V_TEXT))
        err = bad(m, "a name is no text");
    return err ? err : push_name(m, m->value[module].u.text, m->value[name].u.text);
}

/* Items of a tuple into out, at most `most`; -1 when it is none or longer. */
static int items_of(const struct machine *m, ref tuple, ref *out, int most)
{
    const struct value *v = &m->value[tuple];
    if (v->kind != V_TUPLE || v->u.chain.n > (ref)most)
        return -1;
    ref c = v->u.chain.first;
    for (ref i = 0; i < v->u.chain.n; i++, c = m->cell[c].next)
        out[i] = m->cell[c].value;
    return (int)v->u.chain.n;
}

static bool is(const struct machine *m, ref v, enum kind kind)
{
    return m->value[v].kind == kind;
}

/* ("storage", type, key, device, elements) */
static int op_storage(struct machine *m)
{
    ref id = 0, a[5];
    int err = pop(m, &id);
    if (err)
        return err;
    if (items_of(m, id, a, 5) != 5 || !is(m, a[0], V_TEXT) || !is(m, a[1], V_NAME)
        || !is(m, a[2], V_TEXT) || !is(m, a[3], V_TEXT) || !is(m, a[4], V_INT)
        || !is_text(m->value[a[0]].u.text, "storage") || m->value[a[1]].u.i < N_F32
        || m->value[a[4]].u.i < 0)
        return refuse(m, "a persistent object that is no storage");
    enum weight_type type = m->value[a[1]].u.i == N_F32   ? WEIGHT_F32
                            : m->value[a[1]].u.i == N_F16 ? WEIGHT_F16
                                                          : WEIGHT_BF16;
    return push_value(
        m, &(struct value){.kind = V_STORAGE, .u.storage = {m->value[a[4]].u.i, a[2], type}});
}

/* Sizes or strides; their number, -1 when they are none. */
static int sizes_of(const struct machine *m, ref tuple, int64_t out[PICKLED_DIMS])
{
    ref a[PICKLED_DIMS];
    int n = items_of(m, tuple, a, PICKLED_DIMS);
    for (int i = 0; i < n; i++) {
        if (!is(m, a[i], V_INT) || m->value[a[i]].u.i < 0)
            return -1;
        out[i] = m->value[a[i]].u.i;
    }
    return n;
}

/* (storage, offset, size, stride, requires_grad, hooks[, metadata]) */
static int make_tensor(struct machine *m, const ref *a, int n)
{
    struct pickled_tensor t = {.type = WEIGHT_F32};
    if ((n != 6 && n != 7) || !is(m, a[0], V_STORAGE) || !is(m, a[1], V_INT))
        return bad(m, "a tensor is not made of a storage, an offset, sizes and strides");
    const struct value *s = &m->value[a[0]];
    t.storage = m->value[s->u.storage.key].u.text;
    t.type = s->u.storage.type;
    t.storage_n = s->u.storage.n;
    t.offset = m->value[a[1]].u.i;
    t.n_dims = sizes_of(m, a[2], t.dim);
    if (t.offset < 0 || t.n_dims < 0 || sizes_of(m, a[3], t.stride) != t.n_dims)
        return bad(m, "a tensor has no usable offset, or not 0 to 4 sizes and strides from 0 on");
    int err = m->n_tensors < PICKLED_MOST
                  ? reserve(&m->tensor, m->n_tensors, &m->cap_tensors, sizeof *m->tensor)
                  : too_many(m);
    if (err)
        return err;
    m->tensor[m->n_tensors++] = t;
    return push_int(m, V_TENSOR, (int64_t)m->n_tensors - 1);
}

static int op_reduce(struct machine *m)
{
    enum { MOST = 7 };
    ref args = 0, callee = 0, a[MOST];
    int err = pop(m, &args);
    if (!err)
        err = pop(m, &callee);
    if (err)
        return err;
    if (!is(m, callee, V_NAME))
        return refuse(m, "to call what is no name");
    int n = items_of(m, args, a, MOST);
    switch (m->value[callee].u.i) {
    case N_ORDERED_DICT:
        return n == 0 ? push_value(m, &(struct value){.kind = V_DICT})
                      : bad(m, "an OrderedDict is made of something");
    case N_TENSOR:
        return make_tensor(m, a, n);
    case N_REBUILT_PARAMETER:
    case N_PARAMETER: /* the tensor itself, and whether it is trained */
        return n >= 1 && n <= 3 && is(m, a[0], V_TENSOR) ? push(m, a[0])
                                                         : bad(m, "a parameter is no tensor");
    default:
        return refuse(m, "to call a type of storages");
    }
}

/* An OrderedDict of a module has its versions as an attribute: dropped. */
static int op_build(struct machine *m)
{
    ref state = 0;
    int err = pop(m, &state);
    if (err)
        return err;
    if (!has_items(m, 1) || !is(m, m->stack[m->n_stack - 1], V_DICT) || !is(m, state, V_DICT))
        return refuse(m, "to set the state of what is no dict");
    return KVF_OK;
}

static int op_other(struct machine *m, int op)
{
    static const struct {
        int op;
        const char *name;
    } known[] = {{'i', "the opcode INST"},    {'o', "the opcode OBJ"},
                 {0x81, "the opcode NEWOBJ"}, {0x92, "the opcode NEWOBJ_EX"},
                 {0x82, "the opcode EXT1"},   {0x83, "the opcode EXT2"},
                 {0x84, "the opcode EXT4"},   {'P', "the opcode PERSID"}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].op == op)
            return refuse(m, known[i].name);
    return kvf_fail(m->d, KVF_E_FORMAT,
                    "%s: data.pkl has the opcode 0x%02x at offset %zu, which "
                    "torch does not write for a dict of tensors; save the state_dict alone",
                    m->path, (unsigned)op, m->op);
}

static int step(struct machine *m, int op)
{
    uint64_t unused;
    switch (op) {
    case 0x80:
        return take_number(m, 1, &unused); /* PROTO: the opcodes themselves tell */
    case 0x95:
        return take_number(m, 8, &unused); /* FRAME: a hint for readers of streams */
    case '(':
        return push(m, MARK);
    case 'N':
        return push_int(m, V_NONE, 0);
    case 0x88:
    case 0x89:
        return push_int(m, V_BOOL, op == 0x88);
    case 'K':
        return op_int(m, 1, false);
    case 'M':
        return op_int(m, 2, false);
    case 'J':
        return op_int(m, 4, true);
    case 0x8a:
        return op_long(m);
    case 'G':
        return op_float(m);
    case 0x8c:
        return op_text(m, 1);
    case 'X':
        return op_text(m, 4);
    case 0x8d:
        return op_text(m, 8);
    case ')':
        return push_value(m, &(struct value){.kind = V_TUPLE});
    case ']':
        return push_value(m, &(struct value){.kind = V_LIST});
    case '}':
        return push_value(m, &(struct value){.kind = V_DICT});
    case 0x85:
    case 0x86:
    case 0x87:
        return op_tuple(m, (size_t)op - 0x84);
    case 't':
        return op_marked_tuple(m);
    case 'a':
    case 'e':
        return op_add(m, V_LIST, op == 'e');
    case 's':
    case 'u':
        return op_add(m, V_DICT, op == 'u');
    case 0x94:
        return op_put(m, 0);
    case 'q':
        return op_put(m, 1);
    case 'r':
        return op_put(m, 4);
    case 'h':
        return op_get(m, 1);
    case 'j':
        return op_get(m, 4);
    case 'c':
        return op_name(m);
    case 0x93:
        return op_stack_name(m);
    case 'Q':
        return op_storage(m);
    case 'R':
        return op_reduce(m);
    case 'b':
        return op_build(m);
    default:
        return op_other(m, op);
    }
}

/* Until STOP; what is then on the stack alone. */
static int run(struct machine *m, ref *ret)
{
    while (m->at < m->n) {
        int op = m->p[m->op = m->at++];
        if (op == '.') {
            int err = pop(m, ret);
            if (!err && (m->n_stack || m->at != m->n))
                err = bad(m, "it does not end with its only value");
            return err;
        }
        int err = step(m, op);
        if (err)
            return err;
    }
    m->op = m->n;
    return bad(m, "it has no end");
}

/* The dict's member "state_dict" where that is a dict, else the dict. */
static ref tensors_of(const struct machine *m, ref dict)
{
    ref c = m->value[dict].u.chain.first;
    for (ref i = 0; i < m->value[dict].u.chain.n; i++, c = m->cell[c].next)
        if (is(m, m->cell[c].key, V_TEXT) && is(m, m->cell[c].value, V_DICT)
            && is_text(m->value[m->cell[c].key].u.text, "state_dict"))
            return m->cell[c].value;
    return dict;
}

static int give(const struct machine *m, ref top, struct pickled_tensor **ret, size_t *ret_n)
{
    char key[64];
    if (!is(m, top, V_DICT))
        return kvf_fail(m->d, KVF_E_FORMAT,
                        "%s: holds %s, not a dict of tensors; save the "
                        "state_dict",
                        m->path, kind_names[m->value[top].kind]);
    ref dict = tensors_of(m, top), c = m->value[dict].u.chain.first, n = m->value[dict].u.chain.n;
    struct pickled_tensor *t = n <= PICKLED_MOST ? MEM_NEW(struct pickled_tensor, n) : NULL;
    if (!t)
        return n > PICKLED_MOST ? too_many(m) : KVF_E_NOMEM;
    for (ref i = 0; i < n; i++, c = m->cell[c].next) {
        const struct value *k = &m->value[m->cell[c].key], *v = &m->value[m->cell[c].value];
        if (k->kind != V_TEXT || v->kind != V_TENSOR) {
            mem_free(t);
            return kvf_fail(m->d, KVF_E_FORMAT,
                            "%s: member %s is %s, not a tensor; save the "
                            "state_dict alone",
                            m->path,
                            k->kind == V_TEXT ? shown(key, k->u.text) : kind_names[k->kind],
                            kind_names[v->kind]);
        }
        t[i] = m->tensor[v->u.i];
        t[i].name = k->u.text;
    }
    *ret = t;
    *ret_n = n;
    return KVF_OK;
}

int unpickle(const char *path, const unsigned char *p, size_t n, struct pickled_tensor **ret,
             size_t *ret_n, struct kvf_diag *d)
{
    struct machine m = {.path = path, .p = p, .n = n, .d = d};
    ref top = NIL;
    if (n > PICKLE_MOST)
        return kvf_fail(d, KVF_E_LIMIT, "%s: data.pkl has %zu bytes, over the limit", path, n);
    int err = KVF_OK;
    for (int i = 0; !err && i < FIRST; i++) /* NIL and MARK name no value */
        err = add_value(&m, &(struct value){.kind = V_NONE}, &top);
    if (!err)
        err = run(&m, &top);
    if (!err)
        err = give(&m, top, ret, ret_n);
    mem_free(m.value);
    mem_free(m.cell);
    mem_free(m.stack);
    mem_free(m.memo);
    mem_free(m.tensor);
    return err;
}
