/* jinja_run.h - names and functions of a template that runs.  Private to engine/model. */
#ifndef KVF_ENGINE_JINJA_RUN_H
#define KVF_ENGINE_JINJA_RUN_H

#include "engine/model/jinja_node.h"

enum jinja_function {
    JINJA_RAISE,        /* raise_exception(text) */
    JINJA_NAMESPACE_OF, /* namespace(name=value, ...) */
    JINJA_RANGE,        /* range([from,] to [, step]) */
    JINJA_DICT_OF,      /* dict(name=value, ...) */
    JINJA_STRFTIME,     /* strftime_now(form) */
};

/* Variables of one scope; a name that it lacks is looked for in the one around it. */
struct jinja_variable {
    const struct jinja_text *name;
    struct jinja_value value;
    struct jinja_variable *next;
};

struct jinja_frame {
    struct jinja_frame *around;
    struct jinja_variable *first;
};

struct jinja_macro {
    const struct jinja_node *define;
    struct jinja_frame *around;
};

/* The value of a name; NULL: it has none. */
const struct jinja_value *jinja_lookup(struct jinja *j, const struct jinja_text *name);
/* Sets a name of the innermost scope. */
void jinja_assign(struct jinja *j, const struct jinja_text *name, struct jinja_value v);
/* Calls one of the functions (jinja_functions.c). */
struct jinja_value jinja_call(struct jinja *j, int64_t function, const struct jinja_args *args);

#endif
