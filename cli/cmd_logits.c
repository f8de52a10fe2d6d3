/* cmd_logits.c - `kvfate generate --logits` writes next-token logits as .npy (NumPy format 1.0),
 * for parity checks. */
#include <stdio.h>
#include <string.h>

#include "base/replace.h"
#include "cli/commands.h"
#include "cli/runner.h"
#include "cli/watcher.h"

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
    struct replace r;
    int err = replace_open(&r, path, d);
    if (err)
        return err;
    replace_write(&r, head, sizeof head);
    replace_write(&r, v, sizeof *v * (size_t)n);
    return replace_finish(&r, d);
}

struct request {
    struct runner r;
    const char *out;
};

static const struct opt options[] = {
    {OPT_GROUP, 0, "prompt", offsetof(struct request, r), .group = runner_prompt_options},
    {OPT_GROUP, 0, "run", offsetof(struct request, r), .group = runner_method_options},
    {OPT_GROUP, 0, "execution", offsetof(struct request, r.how), .group = execution_options},
    {OPT_STR, 'o', "output", offsetof(struct request, out), "OUT.npy", "the array, f32 [vocab]"},
    {.type = OPT_END},
};

static int read_prompt(struct session *s, const struct prompt *p)
{
    struct watcher w = watcher_count("prefill", "tok");
    w.of = (uint64_t)p->n_ids;
    int err = session_prompt(s, p->ids, p->n_ids, watcher_tokens, &w);
    watcher_end(&w);
    return err;
}

static int cmd_logits(const struct command *self, void *request, int n, char **operand)
{
    (void)n;
    (void)operand;
    struct request *q = request;
    struct kvf_diag d = {""};
    struct session *s = NULL;
    int err = q->out ? KVF_OK : kvf_fail(&d, KVF_E_ARG, "no -o OUT.npy");
    q->r.n_predict = 0;
    if (!err)
        err = runner_open(&q->r, &d);
    if (!err && methods_evict(&q->r.methods) && !methods_cut_prompt(&q->r.methods))
        fprintf(stderr,
                "note: --method %s evicts no entries before the end of the prompt: the logits are "
                "equal to the logits of --method full\n",
                q->r.methods.method);
    if (!err)
        err = runner_output(&q->r, q->out, &d);
    if (!err)
        err = runner_protect(&q->r, NULL, &d);
    if (!err)
        err = runner_session(&q->r, NULL, &s, &d);
    if (!err)
        err = read_prompt(s, &q->r.prompt);
    err = engine_error(q->r.engine, err, &d);
    if (!err)
        err = write_npy(q->out, session_logits(s), q->r.engine->config.vocab, &d);
    session_destroy(s);
    runner_close(&q->r);
    return command_end(self, err, &d);
}

const struct command command_logits = {
    .name = "logits",
    .group = "running",
    .summary = "write the next-token logits of a prompt as a NumPy array",
    .example = "kvfate generate --logits --raw -p 'Once upon a' -o logits.npy",
    .needs = "(-p TEXT | -f FILE | --chat FILE | --ids FILE) -o OUT.npy",
    .options = options,
    .request_bytes = sizeof(struct request),
    .run = cmd_logits,
};
