#include "cli/made_trace.h"

#include <stdio.h>

const struct opt made_trace_options[] = {
    {OPT_STR, 'o', "output", offsetof(struct made_trace, out), "OUT.kvf", "the trace that is made"},
    {OPT_FLAG, 0, "overwrite", offsetof(struct made_trace, overwrite), NULL,
     "replace the trace that is there"},
    {.type = OPT_END},
};

int made_trace_check(const struct made_trace *m, struct kvf_diag *d)
{
    return m->out && m->out[0] ? KVF_OK : kvf_fail(d, KVF_E_ARG, "-o OUT.kvf is missing");
}

struct kvf_copy_options made_trace_how(const struct made_trace *m)
{
    return (struct kvf_copy_options){.overwrite = m->overwrite};
}

void made_trace_print(const char *out, const struct kvf_copied *c)
{
    printf("%s: %u tokens, %llu bytes", out, c->n_steps, (unsigned long long)c->bytes);
    if (c->columns_left)
        printf(", without %d column%s", c->columns_left, c->columns_left == 1 ? "" : "s");
    if (c->left_out)
        printf(", without %llu blobs or records of later releases",
               (unsigned long long)c->left_out);
    printf("\n");
}
