/* unpickle.c - see unpickle.h: the opcodes, one function each, and what they leave. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "engine/gate/pickle_machine.h"

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
    enum weight_type type; /* of a storage */
} names[N_NAMES] = {
    [N_ORDERED_DICT] = {"collections", "OrderedDict", 0},
    [N_TENSOR] = {"torch._utils", "_rebuild_tensor_v2", 0},
    [N_REBUILT_PARAMETER] = {"torch._utils", "_rebuild_parameter", 0},
    [N_PARAMETER] = {"torch.nn.parameter", "Parameter", 0},
    [N_F32] = {"torch", "FloatStorage", WEIGHT_F32},
    [N_F16] = {"torch", "HalfStorage", WEIGHT_F16},
    [N_BF16] = {"torch", "BFloat16Storage", WEIGHT_BF16},
};

/* The text as it may be shown. */
static const char *shown(char out[64], struct pickled_text t)
{
    size_t n = t.n < 63 ? t.n : 63;
    for (size_t i = 0; i < n; i++)
        out[i] = t.at[i] > 0x20 && t.at[i] < 0x7f ? t.at[i] : '?';
    out[n] = 0;
    return out;
}

/* Bytes that say nothing about tensors: the protocol, since the opcodes themselves tell, and the
 * length of a frame, a hint for readers of streams. */
static int op_skip(struct pickle *m, int n)
{
    uint64_t unused;
    return pickle_number(m, (size_t)n, &unused);
}

static int op_mark(struct pickle *m, int unused)
{
    (void)unused;
    return pickle_push(m, MARK);
}

static int op_none(struct pickle *m, int unused)
{
    (void)unused;
    return pickle_push_int(m, V_NONE, 0);
}

static int op_bool(struct pickle *m, int value)
{
    return pickle_push_int(m, V_BOOL, value);
}

static int op_unsigned(struct pickle *m, int bytes)
{
    uint64_t v;
    int err = pickle_number(m, (size_t)bytes, &v);
    return err ? err : pickle_push_int(m, V_INT, (int64_t)v);
}

static int op_signed(struct pickle *m, int bytes)
{
    uint64_t v;
    int64_t i;
    int err = pickle_number(m, (size_t)bytes, &v);
    if (err)
        return err;
    if (bytes > 0 && bytes < 8 && v >> (8 * bytes - 1))
        v |= UINT64_MAX << (8 * bytes);
    memcpy(&i, &v, sizeof i);
    return pickle_push_int(m, V_INT, i);
}

/* A number with its length before it. */
static int op_long(struct pickle *m, int unused)
{
    uint64_t k;
    (void)unused;
    int err = pickle_number(m, 1, &k);
    if (err)
        return err;
    return k > 8 ? pickle_bad(m, "an integer has over 64 bits") : op_signed(m, (int)k);
}

static int op_float(struct pickle *m, int bytes)
{
    uint64_t unused; /* no float says anything about a tensor */
    int err = pickle_number(m, (size_t)bytes, &unused);
    return err ? err : pickle_push_int(m, V_FLOAT, 0);
}

static int op_text(struct pickle *m, int bytes_of_length)
{
    uint64_t n;
    int err = pickle_number(m, (size_t)bytes_of_length, &n);
    if (err)
        return err;
    if (n > m->n - m->at)
        return pickle_bad(m, "a text is longer than the rest");
    struct pickled_text t = {(const char *)m->p + m->at, (size_t)n};
    m->at += (size_t)n;
    return pickle_push_value(m, &(struct value){.kind = V_TEXT, .u.text = t});
}

static int op_empty(struct pickle *m, int kind)
{
    return pickle_push_value(m, &(struct value){.kind = (enum kind)kind});
}

/* Of the k topmost items. */
static int op_tuple(struct pickle *m, int k)
{
    if (!pickle_has(m, (size_t)k))
        return pickle_bad(m, "the stack is empty");
    int err = pickle_push_value(m, &(struct value){.kind = V_TUPLE});
    if (err)
        return err;
    ref tuple = m->stack[--m->n_stack];
    err = pickle_move_items(m, tuple, (size_t)k);
    return err ? err : pickle_push(m, tuple);
}

static int op_marked_tuple(struct pickle *m, int unused)
{
    size_t k = 0;
    (void)unused;
    int err = pickle_above_mark(m, &k);
    if (err)
        return err;
    err = op_tuple(m, (int)k);
    if (err)
        return err;
    m->n_stack--; /* it takes the place of the mark */
    m->stack[m->n_stack - 1] = m->stack[m->n_stack];
    return KVF_OK;
}

/* The k topmost items, above `marks` marks, into the list or dict below. */
static int add_to(struct pickle *m, enum kind kind, size_t k, size_t marks)
{
    if (k + marks >= m->n_stack || !pickle_has(m, k))
        return pickle_bad(m, "the stack is empty");
    ref to = m->stack[m->n_stack - 1 - k - marks];
    if (to == MARK || !pickle_is(m, to, kind))
        return pickle_bad(m, kind == V_DICT ? "members go into no dict" : "items go into no list");
    int err = pickle_move_items(m, to, k);
    if (err)
        return err;
    m->n_stack -= marks;
    return KVF_OK;
}

/* One item, or one key and value. */
static int op_add(struct pickle *m, int kind)
{
    return add_to(m, (enum kind)kind, kind == V_DICT ? 2 : 1, 0);
}

static int op_add_marked(struct pickle *m, int kind)
{
    size_t k = 0;
    int err = pickle_above_mark(m, &k);
    return err ? err : add_to(m, (enum kind)kind, k, 1);
}

/* 0 bytes: the next number. */
static int op_put(struct pickle *m, int bytes)
{
    uint64_t i = m->n_memo;
    int err = bytes ? pickle_number(m, (size_t)bytes, &i) : KVF_OK;
    if (err)
        return err;
    if (i > m->n_memo) /* picklers number them from 0 on */
        return pickle_bad(m, "a number of the memo leaves a gap");
    if (!pickle_has(m, 1))
        return pickle_bad(m, "the stack is empty");
    err = pickle_reserve(&m->memo, m->n_memo, &m->cap_memo, sizeof *m->memo);
    if (err)
        return err;
    m->memo[i] = m->stack[m->n_stack - 1];
    m->n_memo += i == m->n_memo;
    return KVF_OK;
}

static int op_get(struct pickle *m, int bytes)
{
    uint64_t i;
    int err = pickle_number(m, (size_t)bytes, &i);
    if (err)
        return err;
    return i < m->n_memo ? pickle_push(m, m->memo[i])
                         : pickle_bad(m, "a number of the memo is not set");
}

static bool is_text(struct pickled_text t, const char *s)
{
    return t.n == strlen(s) && memcmp(t.at, s, t.n) == 0;
}

static int push_name(struct pickle *m, struct pickled_text module, struct pickled_text name)
{
    char a[64], b[64], what[160];
    for (int i = 0; i < N_NAMES; i++)
        if (is_text(module, names[i].module) && is_text(name, names[i].name))
            return pickle_push_int(m, V_NAME, i);
    snprintf(what, sizeof what, "the name %s.%s", shown(a, module), shown(b, name));
    return pickle_refuse(m, what);
}

static int take_line(struct pickle *m, struct pickled_text *ret)
{
    const unsigned char *b = m->p + m->at, *end = memchr(b, '\n', m->n - m->at);
    if (!end)
        return pickle_bad(m, "a name does not end");
    *ret = (struct pickled_text){(const char *)b, (size_t)(end - b)};
    m->at += ret->n + 1;
    return KVF_OK;
}

static int op_name(struct pickle *m, int unused)
{
    struct pickled_text module, name;
    (void)unused;
    int err = take_line(m, &module);
    if (err)
        return err;
    err = take_line(m, &name);
    return err ? err : push_name(m, module, name);
}

static int op_stack_name(struct pickle *m, int unused)
{
    ref module = NIL, name = NIL;
    (void)unused;
    int err = pickle_pop(m, &name);
    if (err)
        return err;
    err = pickle_pop(m, &module);
    if (err)
        return err;
    if (!pickle_is(m, module, V_TEXT) || !pickle_is(m, name, V_TEXT))
        return pickle_bad(m, "a name is no text");
    return push_name(m, m->value[module].u.text, m->value[name].u.text);
}

/* Items of a tuple into out, at most `most`; -1 when it is none or longer. */
static int items_of(const struct pickle *m, ref tuple, ref *out, int most)
{
    const struct value *v = &m->value[tuple];
    if (v->kind != V_TUPLE || v->u.chain.n > (ref)most)
        return -1;
    ref c = v->u.chain.first;
    for (ref i = 0; i < v->u.chain.n; i++, c = m->cell[c].next)
        out[i] = m->cell[c].value;
    return (int)v->u.chain.n;
}

/* ("storage", type, key, device, elements) */
static int op_storage(struct pickle *m, int unused)
{
    (void)unused;
    ref id = 0, a[5];
    int err = pickle_pop(m, &id);
    if (err)
        return err;
    if (items_of(m, id, a, 5) != 5 || !pickle_is(m, a[0], V_TEXT) || !pickle_is(m, a[1], V_NAME)
        || !pickle_is(m, a[2], V_TEXT) || !pickle_is(m, a[3], V_TEXT) || !pickle_is(m, a[4], V_INT)
        || !is_text(m->value[a[0]].u.text, "storage") || m->value[a[1]].u.i < N_F32
        || m->value[a[4]].u.i < 0)
        return pickle_refuse(m, "a persistent object that is no storage");
    struct value v = {.kind = V_STORAGE};
    v.u.storage.n = m->value[a[4]].u.i;
    v.u.storage.key = a[2];
    v.u.storage.type = names[m->value[a[1]].u.i].type;
    return pickle_push_value(m, &v);
}

/* Sizes or strides; their number, -1 when they are none. */
static int sizes_of(const struct pickle *m, ref tuple, int64_t out[PICKLED_DIMS])
{
    ref a[PICKLED_DIMS];
    int n = items_of(m, tuple, a, PICKLED_DIMS);
    for (int i = 0; i < n; i++) {
        if (!pickle_is(m, a[i], V_INT) || m->value[a[i]].u.i < 0)
            return -1;
        out[i] = m->value[a[i]].u.i;
    }
    return n;
}

/* (storage, offset, size, stride, requires_grad, hooks[, metadata]) */
static int make_tensor(struct pickle *m, const ref *a, int n)
{
    struct pickled_tensor t = {.type = WEIGHT_F32};
    if ((n != 6 && n != 7) || !pickle_is(m, a[0], V_STORAGE) || !pickle_is(m, a[1], V_INT))
        return pickle_bad(m, "a tensor is not made of a storage, an offset, sizes and strides");
    const struct value *s = &m->value[a[0]];
    t.storage = m->value[s->u.storage.key].u.text;
    t.type = s->u.storage.type;
    t.storage_n = s->u.storage.n;
    t.offset = m->value[a[1]].u.i;
    t.n_dims = sizes_of(m, a[2], t.dim);
    if (t.offset < 0 || t.n_dims < 0 || sizes_of(m, a[3], t.stride) != t.n_dims)
        return pickle_bad(
            m, "a tensor has no usable offset, or not 0 to 4 sizes and strides from 0 on");
    if (m->n_tensors >= PICKLED_MOST)
        return pickle_too_many(m);
    int err = pickle_reserve(&m->tensor, m->n_tensors, &m->cap_tensors, sizeof *m->tensor);
    if (err)
        return err;
    m->tensor[m->n_tensors++] = t;
    return pickle_push_int(m, V_TENSOR, (int64_t)m->n_tensors - 1);
}

static int op_reduce(struct pickle *m, int unused)
{
    enum { MOST = 7 };
    ref args = NIL, callee = NIL, a[MOST];
    (void)unused;
    int err = pickle_pop(m, &args);
    if (err)
        return err;
    err = pickle_pop(m, &callee);
    if (err)
        return err;
    if (!pickle_is(m, callee, V_NAME))
        return pickle_refuse(m, "to call what is no name");
    int n = items_of(m, args, a, MOST);
    switch (m->value[callee].u.i) {
    case N_ORDERED_DICT:
        return n == 0 ? pickle_push_value(m, &(struct value){.kind = V_DICT})
                      : pickle_bad(m, "an OrderedDict is made of something");
    case N_TENSOR:
        return make_tensor(m, a, n);
    case N_REBUILT_PARAMETER:
    case N_PARAMETER: /* the tensor itself, and whether it is trained */
        return n >= 1 && n <= 3 && pickle_is(m, a[0], V_TENSOR)
                   ? pickle_push(m, a[0])
                   : pickle_bad(m, "a parameter is no tensor");
    default:
        return pickle_refuse(m, "to call a type of storages");
    }
}

/* An OrderedDict of a module has its versions as an attribute: dropped. */
static int op_build(struct pickle *m, int unused)
{
    ref state = NIL;
    (void)unused;
    int err = pickle_pop(m, &state);
    if (err)
        return err;
    if (!pickle_has(m, 1) || !pickle_is(m, m->stack[m->n_stack - 1], V_DICT)
        || !pickle_is(m, state, V_DICT))
        return pickle_refuse(m, "to set the state of what is no dict");
    return KVF_OK;
}

/* An opcode that would run code: refused by its name. */
struct opcode {
    int (*run)(struct pickle *m, int arg);
    int arg;
    const char *refused;
};

static const struct opcode opcodes[256] = {
    [0x80] = {op_skip, 1},           /* PROTO */
    [0x95] = {op_skip, 8},           /* FRAME */
    ['('] = {op_mark, 0},            /* MARK */
    ['N'] = {op_none, 0},            /* NONE */
    [0x88] = {op_bool, true},        /* NEWTRUE */
    [0x89] = {op_bool, false},       /* NEWFALSE */
    ['K'] = {op_unsigned, 1},        /* BININT1 */
    ['M'] = {op_unsigned, 2},        /* BININT2 */
    ['J'] = {op_signed, 4},          /* BININT */
    [0x8a] = {op_long, 0},           /* LONG1 */
    ['G'] = {op_float, 8},           /* BINFLOAT */
    [0x8c] = {op_text, 1},           /* SHORT_BINUNICODE */
    ['X'] = {op_text, 4},            /* BINUNICODE */
    [0x8d] = {op_text, 8},           /* BINUNICODE8 */
    [')'] = {op_empty, V_TUPLE},     /* EMPTY_TUPLE */
    [']'] = {op_empty, V_LIST},      /* EMPTY_LIST */
    ['}'] = {op_empty, V_DICT},      /* EMPTY_DICT */
    [0x85] = {op_tuple, 1},          /* TUPLE1 */
    [0x86] = {op_tuple, 2},          /* TUPLE2 */
    [0x87] = {op_tuple, 3},          /* TUPLE3 */
    ['t'] = {op_marked_tuple, 0},    /* TUPLE */
    ['a'] = {op_add, V_LIST},        /* APPEND */
    ['e'] = {op_add_marked, V_LIST}, /* APPENDS */
    ['s'] = {op_add, V_DICT},        /* SETITEM */
    ['u'] = {op_add_marked, V_DICT}, /* SETITEMS */
    [0x94] = {op_put, 0},            /* MEMOIZE */
    ['q'] = {op_put, 1},             /* BINPUT */
    ['r'] = {op_put, 4},             /* LONG_BINPUT */
    ['h'] = {op_get, 1},             /* BINGET */
    ['j'] = {op_get, 4},             /* LONG_BINGET */
    ['c'] = {op_name, 0},            /* GLOBAL */
    [0x93] = {op_stack_name, 0},     /* STACK_GLOBAL */
    ['Q'] = {op_storage, 0},         /* BINPERSID */
    ['R'] = {op_reduce, 0},          /* REDUCE */
    ['b'] = {op_build, 0},           /* BUILD */
    ['i'] = {.refused = "the opcode INST"},
    ['o'] = {.refused = "the opcode OBJ"},
    [0x81] = {.refused = "the opcode NEWOBJ"},
    [0x92] = {.refused = "the opcode NEWOBJ_EX"},
    [0x82] = {.refused = "the opcode EXT1"},
    [0x83] = {.refused = "the opcode EXT2"},
    [0x84] = {.refused = "the opcode EXT4"},
    ['P'] = {.refused = "the opcode PERSID"},
};

static int step(struct pickle *m, unsigned char code)
{
    const struct opcode *op = &opcodes[code];
    if (op->run)
        return op->run(m, op->arg);
    if (op->refused)
        return pickle_refuse(m, op->refused);
    return kvf_fail(m->d, KVF_E_FORMAT,
                    "%s: data.pkl has the opcode 0x%02x at offset %zu, which "
                    "torch does not write for a dict of tensors; save the state_dict alone",
                    m->path, (unsigned)code, m->op);
}

/* Until STOP; what is then on the stack alone. */
static int run(struct pickle *m, ref *ret)
{
    while (m->at < m->n) {
        m->op = m->at++;
        if (m->p[m->op] != '.') {
            int err = step(m, m->p[m->op]);
            if (err)
                return err;
            continue;
        }
        int err = pickle_pop(m, ret);
        if (err)
            return err;
        if (m->n_stack || m->at != m->n)
            return pickle_bad(m, "it does not end with its only value");
        return KVF_OK;
    }
    m->op = m->n;
    return pickle_bad(m, "it has no end");
}

/* The dict's member "state_dict" where that is a dict, else the dict. */
static ref tensors_of(const struct pickle *m, ref dict)
{
    ref c = m->value[dict].u.chain.first;
    for (ref i = 0; i < m->value[dict].u.chain.n; i++, c = m->cell[c].next)
        if (pickle_is(m, m->cell[c].key, V_TEXT) && pickle_is(m, m->cell[c].value, V_DICT)
            && is_text(m->value[m->cell[c].key].u.text, "state_dict"))
            return m->cell[c].value;
    return dict;
}

static const char *const kind_names[] = {"None",   "a bool",    "an int",  "a float",
                                         "a str",  "a tuple",   "a list",  "a dict",
                                         "a name", "a storage", "a tensor"};

static int give(const struct pickle *m, ref top, struct pickled_tensor **ret, size_t *ret_n)
{
    char key[64];
    if (!pickle_is(m, top, V_DICT))
        return kvf_fail(m->d, KVF_E_FORMAT,
                        "%s: holds %s, not a dict of tensors; save the "
                        "state_dict",
                        m->path, kind_names[m->value[top].kind]);
    ref dict = tensors_of(m, top), c = m->value[dict].u.chain.first, n = m->value[dict].u.chain.n;
    if (n > PICKLED_MOST)
        return pickle_too_many(m);
    struct pickled_tensor *t = MEM_NEW(struct pickled_tensor, n);
    if (!t)
        return KVF_E_NOMEM;
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
    struct pickle m = {.path = path, .p = p, .n = n, .d = d};
    ref top = NIL;
    if (n > PICKLE_MOST)
        return kvf_fail(d, KVF_E_LIMIT, "%s: data.pkl has %zu bytes, over the limit", path, n);
    int err = pickle_init(&m);
    if (err)
        goto done;
    err = run(&m, &top);
    if (err)
        goto done;
    err = give(&m, top, ret, ret_n);
done:
    pickle_finish(&m);
    return err;
}
