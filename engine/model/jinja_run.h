/* jinja_run.h - private to engine/model: names and functions of a running template. */
#pragma once

#include "engine/model/jinja_node.h"

/* Functions that every template can call. */
enum jinja_function {
    JINJA_RAISE,        /* raise_exception(text) */
    JINJA_NAMESPACE_OF, /* namespace(name=value, ...) */
    JINJA_RANGE,        /* range([from,] to [, step]) */
    JINJA_DICT_OF,      /* dict(name=value, ...) */
    JINJA_STRFTIME,     /* strftime_now(form) */
};

/* The variables of one scope. A missing name is searched in the enclosing scope. */
struct jinja_variable {
    const struct jinja_text *name;
    struct jinja_value value;
    struct jinja_variable *next;
};

struct jinja_frame {
    struct jinja_frame *around;
    struct jinja_variable *first;
};

/* A macro and the scope of its definition. */
struct jinja_macro {
    const struct jinja_node *define;
    struct jinja_frame *around;
};

/* Returns the value of a name; NULL if it is not defined. */
const struct jinja_value *jinja_lookup(struct jinja *j, const struct jinja_text *name);
/* Sets a name in the innermost scope. */
void jinja_assign(struct jinja *j, const struct jinja_text *name, struct jinja_value v);
/* Calls a function (jinja_functions.c). */
struct jinja_value jinja_call(struct jinja *j, int64_t function, const struct jinja_args *args);
