/* jinja_value.h - private to engine/model: values of a chat template, and the memory and work
 * limits of rendering. Callers use jinja.h.
 *
 * All values are allocated in the arena of a struct jinja and freed with it. Errors are sticky:
 * the first error is kept in err and in the diagnosis, and later calls have no effect. Check err
 * before a loop or a dereference. After an error functions return undefined values; pointers may
 * then be NULL only if their comment says so.
 */
#ifndef KVF_ENGINE_JINJA_VALUE_H
#define KVF_ENGINE_JINJA_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <kvf/err.h>

enum { JINJA_MAX_ARGS = 16, JINJA_MAX_DEPTH = 200 };

enum jinja_type {
    JINJA_UNDEFINED, /* text: the name that was requested */
    JINJA_NONE,
    JINJA_BOOL,
    JINJA_INT,
    JINJA_FLOAT,
    JINJA_TEXT,
    JINJA_LIST, /* also tuples */
    JINJA_DICT,
    JINJA_NAMESPACE, /* a dictionary that `set` can change */
    JINJA_LOOP,
    JINJA_FUNCTION, /* i: enum jinja_function */
    JINJA_MACRO,
};

/* Bytes [from, to) of a text come from the content of message number `message`. */
struct jinja_mark {
    size_t from, to;
    int message;
};

/* A text with marks. */
struct jinja_text {
    const char *s;
    size_t n;
    const struct jinja_mark *mark; /* [n_marks], in order and disjoint */
    int n_marks;
};

/* A value of any type. */
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

/* A list. */
struct jinja_list {
    struct jinja_value *item; /* [n] */
    int n;
};

/* An entry of a dictionary. */
struct jinja_entry {
    const struct jinja_text *key;
    struct jinja_value value;
    struct jinja_entry *next; /* in insertion order */
};

/* A dictionary. */
struct jinja_dict {
    struct jinja_entry *first, *last;
    int n;
};

/* The variable `loop` of a for statement. */
struct jinja_loop {
    const struct jinja_list *list;
    int at;
};

/* The arguments of a call. */
struct jinja_args {
    struct jinja_value v[JINJA_MAX_ARGS], named[JINJA_MAX_ARGS];
    const struct jinja_text *name[JINJA_MAX_ARGS];
    int n, n_named;
};

/* A text that is being built. */
struct jinja_out {
    char *s;
    size_t n, cap;
    struct jinja_mark *mark;
    int n_marks, cap_marks;
};

struct jinja_chunk;
struct jinja_node;
struct jinja_frame;

/* A template that is being rendered. */
struct jinja {
    struct jinja_chunk *chunks;
    size_t memory_left;
    uint64_t work_left;
    int depth; /* nesting of macro calls, statements and expressions */
    int line;  /* present line of the template */
    int err;
    struct kvf_diag *d;
    bool asked_think; /* the template used the name enable_thinking */

    struct jinja_frame *frame;
    struct jinja_out *out;
    int jump;         /* enum jinja_jump of jinja_render.c: a pending break or continue */
    const char *date; /* YYYY-MM-DD; NULL if strftime_now is not defined */
    struct jinja_value (*call_macro)(struct jinja *j, const struct jinja_macro *macro,
                                     const struct jinja_args *args);
};

/* Frees the arena. */
void jinja_free(struct jinja *j);

/* Allocates n * size zeroed bytes in the arena; returns NULL after an error, and sets one if a
 * budget is exhausted. */
void *jinja_alloc(struct jinja *j, size_t n, size_t size);
/* Consumes n units of work. Returns false and sets an error if fewer are left. */
bool jinja_work(struct jinja *j, size_t n);
/* Sets the error unless there is one: "line 3 of the chat template: ...". Returns an undefined
 * value. */
KVF_PRINTF(3, 4)
struct jinja_value jinja_error(struct jinja *j, int err, const char *fmt, ...);

/* Texts. jinja_text() refers to s, which must outlive j; the other functions copy. They never
 * return NULL. */
const struct jinja_text *jinja_text(struct jinja *j, const char *s, size_t n);
const struct jinja_text *jinja_join(struct jinja *j, const struct jinja_text *const *part, int n);
/* Returns bytes [from, to) of t with their marks. */
const struct jinja_text *jinja_cut(struct jinja *j, const struct jinja_text *t, size_t from,
                                   size_t to);
bool jinja_is(const struct jinja_text *t, const char *s);
bool jinja_same(const struct jinja_text *a, const struct jinja_text *b);
/* Returns the bytes of the character at s; 1 for an ill-formed byte; n > 0. */
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
struct jinja_value jinja_str(struct jinja *j, const char *s); /* s must outlive j */
struct jinja_value jinja_list(struct jinja *j, int n);        /* n undefined items */
struct jinja_value jinja_dict(struct jinja *j);

/* Returns the value of a key; NULL if the key is missing. */
struct jinja_value *jinja_find(const struct jinja_dict *dict, const struct jinja_text *key);
void jinja_set(struct jinja *j, struct jinja_dict *dict, const struct jinja_text *key,
               struct jinja_value v);

bool jinja_true(const struct jinja_value *v);
/* Returns true if v is a number or a bool, and sets *ret to its value. */
bool jinja_number(const struct jinja_value *v, double *ret);
bool jinja_equal(struct jinja *j, const struct jinja_value *a, const struct jinja_value *b);
/* Returns < 0, 0 or > 0; sets an error for values without an order. */
int jinja_order(struct jinja *j, const struct jinja_value *a, const struct jinja_value *b);
/* Returns the items of a list, the keys of a dictionary, the characters of a text, or an empty
 * list for an undefined value. */
const struct jinja_list *jinja_items(struct jinja *j, const struct jinja_value *v);
/* Returns the text that printing a value gives. */
const struct jinja_text *jinja_printed(struct jinja *j, const struct jinja_value *v);
/* Returns the name of a type for messages. */
const char *jinja_type_name(const struct jinja_value *v);

#endif
