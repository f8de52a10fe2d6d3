/* jinja_value.h - what the values of a chat template are, and the memory and work that rendering
 * one may take.  Private to engine/model; jinja.h is for callers.
 *
 * All that a template makes lives in the arena of a struct jinja and dies with it.  Errors are
 * sticky: the first is kept in err and in the diagnosis, later calls do nothing of use, and
 * whoever loops or dereferences asks err first.  Values that functions return after an error are
 * undefined ones; pointers may then be NULL only where that is said. */
#ifndef KVF_ENGINE_JINJA_VALUE_H
#define KVF_ENGINE_JINJA_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kvf/err.h>

enum { JINJA_MAX_ARGS = 16, JINJA_MAX_DEPTH = 200 };

enum jinja_type {
    JINJA_UNDEFINED, /* text: the name that was asked for */
    JINJA_NONE,
    JINJA_BOOL,
    JINJA_INT,
    JINJA_FLOAT,
    JINJA_TEXT,
    JINJA_LIST, /* tuples too */
    JINJA_DICT,
    JINJA_NAMESPACE, /* a dictionary that `set` may change */
    JINJA_LOOP,
    JINJA_FUNCTION, /* i: enum jinja_function */
    JINJA_MACRO,
};

/* Bytes [from, to) of a text are bytes of the content of message number `message`. */
struct jinja_mark {
    size_t from, to;
    int message;
};

struct jinja_text {
    const char *s;
    size_t n;
    const struct jinja_mark *mark; /* [n_marks], in order, without overlaps */
    int n_marks;
};

struct jinja_value {
    enum jinja_type type;
    union {
        bool b;
        int64_t i;
        double f;
        const struct jinja_text *text;
        struct jinja_list *list;
        struct jinja_dict *dict;
        const struct jinja_loop *loop;
        const struct jinja_macro *macro;
    } u;
};

struct jinja_list {
    struct jinja_value *item; /* [n] */
    int n;
};

struct jinja_entry {
    const struct jinja_text *key;
    struct jinja_value value;
    struct jinja_entry *next; /* in order of insertion */
};

struct jinja_dict {
    struct jinja_entry *first, *last;
    int n;
};

struct jinja_loop {
    const struct jinja_list *list;
    int at;
};

/* What the values of a call are. */
struct jinja_args {
    struct jinja_value v[JINJA_MAX_ARGS], named[JINJA_MAX_ARGS];
    const struct jinja_text *name[JINJA_MAX_ARGS];
    int n, n_named;
};

/* Text that grows. */
struct jinja_out {
    char *s;
    size_t n, cap;
    struct jinja_mark *mark;
    int n_marks, cap_marks;
};

struct jinja_chunk;
struct jinja_node;
struct jinja_frame;

/* A template on its way. */
struct jinja {
    struct jinja_chunk *chunks;
    size_t memory_left;
    uint64_t work_left;
    int depth; /* of calls of macros and of nested statements and expressions */
    int line;  /* where we are in the template */
    int err;
    struct kvf_diag *d;
    bool asked_think; /* the template named enable_thinking */

    struct jinja_frame *frame;
    struct jinja_out *out;
    int jump;         /* enum jinja_jump of jinja_run.c: a break or continue on its way */
    const char *date; /* YYYY-MM-DD; NULL: strftime_now is not defined */
    struct jinja_value (*call_macro)(struct jinja *j, const struct jinja_macro *macro,
                                     const struct jinja_args *args);
};

/* Frees the arena. */
void jinja_free(struct jinja *j);

/* n * size zeroed bytes of the arena; NULL after an error, which it may be. */
void *jinja_alloc(struct jinja *j, size_t n, size_t size);
/* Takes n units of work; false, with the error set, when there are not as many left. */
bool jinja_work(struct jinja *j, size_t n);
/* Sets the error unless there is one: "line 3 of the chat template: ...".  Returns an undefined
 * value. */
KVF_PRINTF(3, 4)
struct jinja_value jinja_refuse(struct jinja *j, int err, const char *fmt, ...);

/* Text.  jinja_text keeps s, which must outlive j; the others copy.  Never NULL. */
const struct jinja_text *jinja_text(struct jinja *j, const char *s, size_t n);
const struct jinja_text *jinja_join(struct jinja *j, const struct jinja_text *const *part, int n);
/* Bytes [from, to) of t, with their marks. */
const struct jinja_text *jinja_cut(struct jinja *j, const struct jinja_text *t, size_t from,
                                   size_t to);
bool jinja_is(const struct jinja_text *t, const char *s);
bool jinja_same(const struct jinja_text *a, const struct jinja_text *b);
/* Bytes of the character at s, 1 for bytes that are none; n > 0. */
size_t jinja_char(const char *s, size_t n);
int64_t jinja_chars(struct jinja *j, const struct jinja_text *t);

void jinja_put(struct jinja *j, struct jinja_out *out, const struct jinja_text *t);
const struct jinja_text *jinja_taken(struct jinja *j, const struct jinja_out *out);

/* Values. */
struct jinja_value jinja_undefined(struct jinja *j, const char *name, size_t n);
struct jinja_value jinja_none(void);
struct jinja_value jinja_bool(bool b);
struct jinja_value jinja_int(int64_t i);
struct jinja_value jinja_of_text(const struct jinja_text *t);
struct jinja_value jinja_str(struct jinja *j, const char *s); /* s outlives j */
struct jinja_value jinja_list(struct jinja *j, int n);        /* n undefined items */
struct jinja_value jinja_dict(struct jinja *j);

/* NULL: there is none. */
struct jinja_value *jinja_find(const struct jinja_dict *dict, const struct jinja_text *key);
void jinja_set(struct jinja *j, struct jinja_dict *dict, const struct jinja_text *key,
               struct jinja_value v);

bool jinja_true(const struct jinja_value *v);
/* Whether a number, bool included; *ret: its value. */
bool jinja_number(const struct jinja_value *v, double *ret);
bool jinja_equal(struct jinja *j, const struct jinja_value *a, const struct jinja_value *b);
/* < 0, 0, > 0; an error for values without an order. */
int jinja_order(struct jinja *j, const struct jinja_value *a, const struct jinja_value *b);
/* Items of a list, keys of a dictionary, characters of a text, none of an undefined value. */
const struct jinja_list *jinja_items(struct jinja *j, const struct jinja_value *v);
/* As printing shows it. */
const struct jinja_text *jinja_printed(struct jinja *j, const struct jinja_value *v);
/* How a sentence names the type. */
const char *jinja_type_name(const struct jinja_value *v);

#endif
