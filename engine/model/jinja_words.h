/* jinja_words.h - private to engine/model: methods of values, functions, filters and tests that
 * templates call by name. Unknown names are rejected with the line of the template. */
#pragma once

#include "engine/model/jinja_value.h"

/* Calls of.name(args) for a text (jinja_methods.c). Returns false if texts have no such method. */
bool jinja_text_method(struct jinja *j, const struct jinja_text *of, const struct jinja_text *name,
                       const struct jinja_args *args, struct jinja_value *ret);
/* Returns true if Python's texts or dictionaries have a method of that name. */
bool jinja_is_method(const struct jinja_value *of, const struct jinja_text *name);
/* Calls of.name(args) for a dictionary. Returns false if dictionaries have no such method. */
bool jinja_dict_method(struct jinja *j, const struct jinja_dict *of, const struct jinja_text *name,
                       const struct jinja_args *args, struct jinja_value *ret);

/* Evaluates of | name(args). */
struct jinja_value jinja_filter(struct jinja *j, const struct jinja_text *name,
                                const struct jinja_value *of, const struct jinja_args *args);
/* Evaluates of is name(args). */
bool jinja_test(struct jinja *j, const struct jinja_text *name, const struct jinja_value *of,
                const struct jinja_args *args);

/* Returns of.name or of['name'] without a call; undefined if it does not exist. */
struct jinja_value jinja_member(struct jinja *j, const struct jinja_value *of,
                                const struct jinja_text *name);
/* Returns true if `what` is in `in`. */
bool jinja_contains(struct jinja *j, const struct jinja_value *in, const struct jinja_value *what);

/* Returns the argument at position `at` or with this name; NULL if not given. */
const struct jinja_value *jinja_arg(const struct jinja_args *args, int at, const char *name);
/* Returns the text of an argument; `otherwise` if it is not given. Sets an error if it is not a
 * text. */
const struct jinja_text *jinja_arg_text(struct jinja *j, const struct jinja_args *args, int at,
                                        const char *name, const struct jinja_text *otherwise);

/* Functions of texts (jinja_text.c). side: -1 left, 1 right, 0 both; chars NULL means white
 * space. */
const struct jinja_text *jinja_strip(struct jinja *j, const struct jinja_text *t,
                                     const struct jinja_text *chars, int side);
/* what: 'u' upper, 'l' lower, 't' title, 'c' capitalize. */
const struct jinja_text *jinja_case(struct jinja *j, const struct jinja_text *t, char what);
const struct jinja_text *jinja_replace(struct jinja *j, const struct jinja_text *t,
                                       const struct jinja_text *from, const struct jinja_text *to,
                                       int64_t most);
/* sep NULL means white space; most < 0 means no limit. */
struct jinja_value jinja_split(struct jinja *j, const struct jinja_text *t,
                               const struct jinja_text *sep, int64_t most);
struct jinja_value jinja_rsplit(struct jinja *j, const struct jinja_text *t,
                                const struct jinja_text *sep, int64_t most);
/* Returns the byte position of the first or last occurrence; -1 if there is none. */
int64_t jinja_place(struct jinja *j, const struct jinja_text *t, const struct jinja_text *what,
                    bool last);
struct jinja_value jinja_joined(struct jinja *j, const struct jinja_text *between,
                                const struct jinja_list *list);
/* Returns items or characters from:to:step of a list or text, with Python's rules. A part of type
 * none is not given. */
struct jinja_value jinja_slice(struct jinja *j, const struct jinja_value *of,
                               const struct jinja_value part[3]);
/* Returns JSON as the transformers library writes it, with minimal escapes. indent < 0 writes one
 * line. */
struct jinja_value jinja_tojson(struct jinja *j, const struct jinja_value *v, int64_t indent);
