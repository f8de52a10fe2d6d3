/* cmd_logits.c - next-token logits as .npy (NumPy format 1.0), for parity checks. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cli/cmds.h"
#include "cli/runner.h"

static int write_npy(const char *path, const float *v, int n, struct kvf_diag *d)
{
    char head[128];
    int len = snprintf(head + 10, sizeof head - 10,
                       "{'descr': '<f4', 'fortran_order': False, 'shape': (%d,), }", n);
    memset(head + 10 + len, ' ', sizeof head - 10 - (size_t)len);
    memcpy(head, "\x93NUMPY\x01\x00", 8);
    head[8] = sizeof head - 10;
    head[9] = 0;
    head[sizeof head - 1] = '\n';
    FILE *f = fopen(path, "wb");
    if (!f)
        return kvf_fail(d, KVF_E_IO, "%s: cannot create: %s", path, strerror(errno));
    bool bad = fwrite(head, 1, sizeof head, f) != sizeof head
               || fwrite(v, sizeof *v, (size_t)n, f) != (size_t)n;
    if (fclose(f) != 0 || bad)
        return kvf_fail(d, KVF_E_IO, "%s: cannot write: %s", path, strerror(errno));
    return KVF_OK;
}

int cmd_logits(const struct command *self, int argc, char **argv)
{
    struct runner r;
    struct kvf_diag d = {""};
    struct opt list[RUNNER_OPTIONS + 2];
    const char *out = NULL;
    int operands, status;
    runner_init(&r);
    int n = runner_options(&r, list);
    list[n++] = (struct opt){OPT_STR, 'o', "output", &out, "OUT.npy", "the array, f32 [vocab]",
                             0,       0};
    list[n] = (struct opt){.type = OPT_END};
    if (!command_options(self, list, argc, argv, 0, 0, &operands, &status))
        return status;
    struct session *s = NULL;
    int err = out ? KVF_OK : kvf_fail(&d, KVF_E_ARG, "no -o OUT.npy");
    if (!err)
        err = runner_open(&r, &d);
    if (!err)
        err = runner_output(&r, out, &d);
    if (!err)
        err = runner_session(&r, NULL, &s, &d);
    if (!err)
        err = session_prompt(s, r.ids, r.n_ids, NULL, NULL);
    if (!err)
        err = write_npy(out, session_logits(s), r.engine->config.vocab, &d);
    if (err)
        fprintf(stderr, "kvfate logits: %s\n", d.text[0] ? d.text : kvf_strerror(err));
    session_destroy(s);
    runner_close(&r);
    return runner_status(err);
}
