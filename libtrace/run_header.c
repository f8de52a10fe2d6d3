/* run_header.c - parses the run header of a trace. */
#include "libtrace/run_header.h"

#include <string.h>

int run_header(const struct kvf_trace *t, struct json **ret_root, struct kvf_diag *d)
{
    const char *text = kvf_meta(t);
    int err = json_parse(text, strlen(text), ret_root, d);
    if (err && err != KVF_E_NOMEM)
        kvf_diag_prefix(d, "%s: the run header", kvf_path(t));
    return err;
}

int trace_number(const struct kvf_trace *t, const char *section, const char *key, int64_t absent,
                 int64_t *ret, struct kvf_diag *d)
{
    struct json *root = NULL;
    int err = run_header(t, &root, d);
    if (err)
        return err;
    const struct json *member = json_get(json_get(root, section), key);
    int64_t low = json_int(member, INT64_MIN), value = member ? low : absent;
    if (member && low == INT64_MIN)
        err = kvf_fail(d, KVF_E_FORMAT, "%s: %s.%s of the run header is not a whole number",
                       kvf_path(t), section, key);
    else
        *ret = value;
    json_free(root);
    return err;
}
