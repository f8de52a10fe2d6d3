/* schema.c - which names the columns and blobs of a new trace may have: the names of
 * <kvf/schema.h>, and a user's own names.  Traces that are read or copied may have others: earlier
 * versions wrote them. */
#include <string.h>

#include "libtrace/schema_rules.h"
#include "libtrace/writer.h"

const struct rule *schema_rule(const char *name)
{
#define X(...) {__VA_ARGS__},
    static const struct rule rules[] = {SCHEMA_RULES(X)};
#undef X
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        size_t n = strlen(rules[i].name);
        if (rules[i].name[n - 1] == '*' ? strncmp(name, rules[i].name, n - 1) == 0
                                        : strcmp(name, rules[i].name) == 0)
            return &rules[i];
    }
    return NULL;
}

bool blob_name_known(const char *name)
{
    static const char *const names[] = {"q", "k", "v", "attention", "logit"};
    bool known = strncmp(name, "x-", 2) == 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        known |= strcmp(name, names[i]) == 0;
    return known;
}

static int check_names(const struct kvf_column *c, int n, struct kvf_diag *d)
{
    for (int i = 0; i < n && i < KVF_MAX_COLUMNS; i++) {
        bool ends = memchr(c[i].name, 0, KVF_NAME_MAX) != NULL; /* else writer_open rejects it */
        if (ends && c[i].name[0] && strncmp(c[i].name, "x-", 2) != 0 && !schema_rule(c[i].name))
            return kvf_fail(d, KVF_E_ARG,
                            "column %s: the name is not one of <kvf/schema.h>; names of columns of "
                            "one's own begin with x-, as x-%s",
                            c[i].name, c[i].name);
    }
    return KVF_OK;
}

int kvf_writer_open(const char *path, const char *meta_json, const struct kvf_shape *shape,
                    const struct kvf_column *columns, int n_columns,
                    const struct kvf_writer_options *options, struct kvf_writer **ret_writer,
                    struct kvf_diag *d)
{
    int err = check_names(columns, n_columns, d);
    return err ? err
               : writer_open(path, meta_json, shape, columns, n_columns, options, ret_writer, d);
}

int kvf_write_blob(struct kvf_writer *w, const struct kvf_blob *b, bool packed, const void *data)
{
    if (memchr(b->name, 0, KVF_NAME_MAX) && !blob_name_known(b->name))
        return writer_refuse(w, KVF_E_ARG);
    return writer_blob(w, b, packed, data);
}
