/* style.c - parses the keys of --style into a figure's struct. */
#include "render/style.h"

#include <stdio.h>
#include <string.h>

const struct opt style_none[] = {{.type = OPT_END}};

enum { PIECE = 64 }; /* bytes of a key and of a value */

/* Appends the pairs of option to text as "key\0value\0key\0value\0", so that values can be
 * borrowed. */
static int split_pairs(const char *option, struct buf *text, struct kvf_diag *d)
{
    char name[PIECE], value[PIECE];
    int more = 0;
    while (option) {
        more = opt_pair(&option, name, value, PIECE);
        if (more != 1)
            break;
        buf_add(text, name, strlen(name) + 1);
        buf_add(text, value, strlen(value) + 1);
    }
    if (more)
        return kvf_fail(d, KVF_E_ARG, "--style needs key=value pairs");
    return text->err;
}

int style_read(const char *figure, const struct opt *keys, const char *option, void *ret,
               struct buf *text, struct kvf_diag *d)
{
    int err = opt_defaults(keys, ret, d);
    if (!err)
        err = split_pairs(option, text, d);
    if (err || !text->len)
        return err;
    const char *end = text->data + text->len, *name = text->data, *value;
    for (; !err && name < end; name = value + strlen(value) + 1) {
        struct kvf_diag why = {""};
        value = name + strlen(name) + 1;
        if (*value)
            err = opt_set(keys, ret, name, value, &why);
        else
            err = kvf_fail(&why, KVF_E_ARG, "%s needs a value", name);
        if (err)
            kvf_fail(d, err, "--style of %s: %.400s", figure, why.text);
    }
    return err;
}

int style_steps(const char *value, int64_t last, int64_t *from, int64_t *to, struct kvf_diag *d)
{
    int64_t a = 0, b = -1;
    if (!value)
        return KVF_OK;
    int err = opt_range("--style steps", value, &a, &b, d);
    if (!err)
        err = opt_range_fit("--style steps", "steps", "the table", last + 1, &a, &b, d);
    if (err)
        return err;
    *from = a;
    *to = b;
    return KVF_OK;
}
