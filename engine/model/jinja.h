/* jinja.h - a chat template, rendered: a bounded part of Jinja2 as the transformers library sets
 * it up (trim_blocks, lstrip_blocks, break and continue, tojson that keeps letters).
 *
 * Done: text, comments, {{ }}, if, for with else and if, set (of several names, of a block, of a
 * namespace), macro, generation, filter, break, continue; expressions with all of Jinja's
 * operators, slices, lists, dictionaries; the methods, filters, tests and functions that the
 * tables of jinja_methods.c, jinja_filters.c, jinja_tests.c and jinja_functions.c name.  What is
 * not done is refused by name with the line of the template. */
#ifndef KVF_ENGINE_JINJA_H
#define KVF_ENGINE_JINJA_H

#include "engine/model/jinja_value.h"

/* A machine with the budgets of a template over `bytes` bytes of messages: 16 MiB and sixteen
 * times the messages, and some millions of steps.  date: YYYY-MM-DD, borrowed; NULL: the function
 * strftime_now is not defined. */
void jinja_init(struct jinja *j, size_t bytes, const char *date, struct kvf_diag *d);

/* Renders a template over the variables of a dictionary.  The text, with the marks of messages
 * that it shows, lives in j's arena.  KVF_OK; KVF_E_FORMAT for what is not known here or is wrong,
 * and for messages that the template itself refuses; KVF_E_ARG where it calls strftime_now without
 * a date; KVF_E_LIMIT for one of the budgets. */
int jinja_render(struct jinja *j, const char *text, size_t n, const struct jinja_dict *variables,
                 const struct jinja_text **ret_text);

#endif
