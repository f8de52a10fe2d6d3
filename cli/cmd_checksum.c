/* cmd_checksum.c - `kvfate trace checksum` computes digests of all values of traces, and compares
 * them with the digests that the writer stored. */
#include <stdio.h>
#include <string.h>

#include <kvf/trace.h>

#include "cli/commands.h"
#include "cli/open_traces.h"
#include "cli/shown.h"
#include "cli/watcher.h"

struct request {
    bool stored;
};

static const struct opt options[] = {
    {OPT_FLAG, 0, "stored", offsetof(struct request, stored), NULL,
     "print the digest in the metadata of the file, without reading values"},
    {.type = OPT_END},
};

/* Computes kvf_digest(), and compares it with the stored digest if the file has one. */
static int compute(struct kvf_trace *t, const char *path, char ret[33], struct kvf_diag *d)
{
    char stored[33];
    struct watcher w = watcher_begin("checksum");
    kvf_watch(t, watcher_update, &w);
    int err = kvf_digest(t, ret, d);
    watcher_end(&w);
    kvf_watch(t, NULL, NULL);
    if (err || kvf_stored_digest(t, stored) != KVF_OK || strcmp(ret, stored) == 0)
        return err;
    return kvf_fail(d, KVF_E_CORRUPT,
                    "%s: its content has the digest %s, the digest of its writer is %s", path, ret,
                    stored);
}

static int one(const struct command *self, const struct request *q, const char *path,
               struct kvf_diag *d)
{
    struct kvf_trace *t = NULL;
    char digest[33] = "";
    int err = kvf_open(path, KVF_OPEN_TAIL, &t, d);
    if (err)
        return err;
    if (!q->stored)
        err = compute(t, path, digest, d);
    else if (kvf_stored_digest(t, digest) != KVF_OK)
        err = kvf_fail(d, KVF_E_NOTFOUND,
                       "%s: no digest is stored in it: it was not closed, or is of format 0.1",
                       path);
    if (!err) {
        printf("%s  %s\n", digest, shown_name(path).text);
        trace_check_complete(self, t, "summing up");
    }
    kvf_close(t);
    return err;
}

static int cmd_checksum(const struct command *self, void *request, int n, char **operand)
{
    int status = EXIT_OK;
    for (int i = 0; i < n; i++) {
        struct kvf_diag d = {""};
        int err = one(self, request, operand[i], &d);
        if (!err)
            continue;
        command_print_error(self, err, &d);
        status = EXIT_FAILED;
    }
    return status;
}

static const struct exit_status exits[] = {
    {"0", "The digests were printed."},
    {"1", "A trace is damaged, was not closed, or differs from the digest of its writer; the other "
          "digests were printed."},
    {NULL, NULL},
};

const struct command command_checksum = {
    .name = "checksum",
    .group = "files",
    .summary = "print a digest of the contents of each trace",
    .example = "kvfate trace checksum run.kvf",
    .operands = {"X.kvf...", "trace", 1, -1},
    .options = options,
    .request_bytes = sizeof(struct request),
    .exits = exits,
    .run = cmd_checksum,
};
