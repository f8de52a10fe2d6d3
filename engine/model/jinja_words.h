/* jinja_words.h - what templates call by name: methods of values, functions, filters and tests.
 * Private to engine/model.  Names that are not known are refused, with the line. */
#ifndef KVF_ENGINE_JINJA_WORDS_H
#define KVF_ENGINE_JINJA_WORDS_H

#include "engine/model/jinja_value.h"

/* of.name(args) where `of` is a text (jinja_methods.c); false: a text has no such method. */
bool jinja_text_method(struct jinja *j, const struct jinja_text *of, const struct jinja_text *name,
                       const struct jinja_args *args, struct jinja_value *ret);
/* Whether Python's texts, or dictionaries, have a method of that name. */
bool jinja_is_method(const struct jinja_value *of, const struct jinja_text *name);
/* of.name(args) where `of` is a dictionary. */
bool jinja_dict_method(struct jinja *j, const struct jinja_dict *of, const struct jinja_text *name,
                       const struct jinja_args *args, struct jinja_value *ret);

/* of | name(args) */
struct jinja_value jinja_filter(struct jinja *j, const struct jinja_text *name,
                                const struct jinja_value *of, const struct jinja_args *args);
/* of is name(args) */
bool jinja_test(struct jinja *j, const struct jinja_text *name, const struct jinja_value *of,
                const struct jinja_args *args);

/* of.name or of['name'] without a call; undefined where there is none. */
struct jinja_value jinja_member(struct jinja *j, const struct jinja_value *of,
                                const struct jinja_text *name);
/* Whether `what` is in `in`. */
bool jinja_contains(struct jinja *j, const struct jinja_value *in, const struct jinja_value *what);

/* The value of the argument that is the at-th, or has the name; NULL: not given. */
const struct jinja_value *jinja_arg(const struct jinja_args *args, int at, const char *name);
/* The text of it; `otherwise` where it is not given; an error where it is no text. */
const struct jinja_text *jinja_arg_text(struct jinja *j, const struct jinja_args *args, int at,
                                        const char *name, const struct jinja_text *otherwise);

/* Texts (jinja_text.c).  side: -1 left, 1 right, 0 both; chars NULL: white space. */
const struct jinja_text *jinja_strip(struct jinja *j, const struct jinja_text *t,
                                     const struct jinja_text *chars, int side);
/* what: 'u' upper, 'l' lower, 't' title, 'c' capitalize. */
const struct jinja_text *jinja_case(struct jinja *j, const struct jinja_text *t, char what);
const struct jinja_text *jinja_replace(struct jinja *j, const struct jinja_text *t,
                                       const struct jinja_text *from, const struct jinja_text *to,
                                       int64_t most);
/* sep NULL: white space; most < 0: no limit. */
struct jinja_value jinja_split(struct jinja *j, const struct jinja_text *t,
                               const struct jinja_text *sep, int64_t most);
struct jinja_value jinja_rsplit(struct jinja *j, const struct jinja_text *t,
                                const struct jinja_text *sep, int64_t most);
/* The place of the first, or last, in bytes; -1: none. */
int64_t jinja_place(struct jinja *j, const struct jinja_text *t, const struct jinja_text *what,
                    bool last);
struct jinja_value jinja_joined(struct jinja *j, const struct jinja_text *between,
                                const struct jinja_list *list);
/* Items or characters from:to:step of a list or text, as Python has them; NULL: not given. */
struct jinja_value jinja_slice(struct jinja *j, const struct jinja_value *of,
                               const struct jinja_value part[3]);
/* JSON as the transformers library writes it: not escaped beyond need; indent < 0: one line. */
struct jinja_value jinja_tojson(struct jinja *j, const struct jinja_value *v, int64_t indent);

#endif
