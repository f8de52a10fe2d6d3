/* jinja.h - renders a chat template: a bounded part of Jinja2 with the settings of the
 * transformers library (trim_blocks, lstrip_blocks, break and continue, and a tojson that does not
 * escape letters).
 *
 * Supported are text, comments, {{ }}, if, for with else and if, set (several names, a block, a
 * namespace), macro, generation, filter, break and continue. Expressions have all of Jinja's
 * operators, slices, lists and dictionaries, and the methods, filters, tests and functions in the
 * tables of jinja_methods.c, jinja_filters.c, jinja_tests.c and jinja_functions.c. Any other
 * feature is rejected by name with the line of the template.
 */
#pragma once

#include "engine/model/jinja_value.h"

/* Initialises a machine with the budgets of a template for `bytes` bytes of messages: 16 MiB plus
 * sixteen times the messages, and some millions of steps. date: YYYY-MM-DD, borrowed; NULL if the
 * function strftime_now is not defined. */
void jinja_init(struct jinja *j, size_t bytes, const char *date, struct kvf_diag *d);

/* Renders a template with the variables of a dictionary. The text, with marks for the messages
 * that it shows, is allocated in j's arena. Returns KVF_OK. Returns KVF_E_FORMAT for unsupported
 * or wrong templates, and if the template raises an exception. Returns KVF_E_ARG if it calls
 * strftime_now without a date, and KVF_E_LIMIT if a budget is exhausted. */
int jinja_render(struct jinja *j, const char *text, size_t n, const struct jinja_dict *variables,
                 const struct jinja_text **ret_text);
