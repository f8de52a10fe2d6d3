/* run_header.h - the run header of a trace as JSON.  It belongs to the programs of this project;
 * the installed library gives the header as text (kvf_meta). */
#pragma once

#include <kvf/trace.h>

#include "base/json.h"

/* Parses the run header; the caller frees *ret_root with json_free.  KVF_OK, KVF_E_NOMEM, or the
 * errors of json_parse with a sentence that names the trace. */
int run_header(const struct kvf_trace *t, struct json **ret_root, struct kvf_diag *d);

/* Sets *ret to a whole number of the run header, member `key` of its object `section`, or to
 * `absent` if the header has none.  KVF_E_FORMAT with a sentence if the member is anything else, or
 * the header cannot be read. */
int trace_number(const struct kvf_trace *t, const char *section, const char *key, int64_t absent,
                 int64_t *ret, struct kvf_diag *d);
