/* jsonl.h - batches: a file of prompts, one JSON object a line (--jsonl), and the loop over them.
 *
 * A line has "prompt" (a user's message, as -p gives it), "messages" and "tools" (as --chat reads
 * them) or "text" (as --raw -p gives it), and may have "id", "n" (-n), "seed" (--seed) and "until",
 * texts before which the answer ends.  A "text" may have a "continuation" instead of an answer: its
 * tokens are fed, and what the model says of them is the result.  All lines are checked before any
 * is run.  An answer or a trace is named by its id; without one the id is the number of the line in
 * six digits or more. */
#ifndef KVF_CLI_JSONL_H
#define KVF_CLI_JSONL_H

#include "base/progress.h"
#include "cli/commands.h"
#include "cli/crew.h"
#include "engine/experiment/prompt.h"
#include "cli/shard.h"

enum { JSONL_ID = 100 }; /* bytes of an id, at most */

struct jsonl_line {
    char id[JSONL_ID + 1];
    int number;                /* in the file, from 1 */
    struct json *root;         /* owned; the rest is borrowed from it */
    const char *prompt, *text; /* one of these three is not NULL */
    char *messages;            /* owned: the line, if it has "messages"; or NULL */
    const char *continuation;  /* of `text`: what is scored instead of an answer; or NULL */
    const struct json *until;  /* an array of texts that end the answer; or NULL */
    int64_t n, seed;           /* -1: not given */
};

/* What came of a line: KVF_OK, KVF_E_CANCEL after a signal, or an error.  Returns an error that
 * ends the loop. */
typedef int (*jsonl_done)(void *loop, const struct jsonl_line *line, int err, struct kvf_diag *d);

struct jsonl {
    const char *file, *part; /* options --jsonl and --shard */
    int64_t together, room;  /* options --together and --room, GiB; 0: not given */
    /* What the command says. */
    const char *folder; /* where the traces go, ID.kvf; NULL: none are made */
    bool overwrite;     /* traces that are there are made anew; else they are checked and skipped */
    bool quiet;         /* no progress and no last line */
    /* Begins a line; out: the trace, or NULL.  Lines that are done meanwhile are told in their
     * order. Returns the first error of `done`, as rest does, which finishes all. */
    int (*make)(void *ctx, const struct jsonl_line *line, const char *out, jsonl_done done,
                void *loop);
    int (*rest)(void *ctx, jsonl_done done, void *loop);
    /* Whether the trace of a line that is there is that of the same run: KVF_OK, or an error that
     * says what differs. */
    int (*check)(void *ctx, const struct jsonl_line *line, const char *trace, struct kvf_diag *d);
    void *ctx;

    /* made by jsonl_open */
    struct shard shard;
    struct crew *crew;       /* lines are its cells */
    struct progress bar;     /* of its lines; `make` and `rest` tell what is under way */
    int64_t told;            /* lines that are done or have failed */
    int64_t cut;             /* answers that the context ended; `make` and `rest` count them */
    struct jsonl_line *line; /* [n_lines] owned */
    size_t n_lines, cap;
};

extern const struct opt jsonl_options[]; /* of a struct jsonl */

/* Reads and checks the file, and makes the folder where it is missing.  KVF_OK, KVF_E_ARG for
 * usage errors, others with a sentence that names the file and the line. */
int jsonl_open(struct jsonl *b, struct kvf_diag *d);
void jsonl_close(struct jsonl *b); /* accepts a zeroed struct */

/* Makes the lines of the shard in their order, some side by side, with the other ranks of the crew.
 * A line that fails is told, and the others are made; want of memory or of space ends the loop.
 * Returns the exit status, and has said why. */
int jsonl_run(const struct command *self, struct jsonl *b);

#endif
