/* jsonl.h - batches: a file of prompts with one JSON object per line (--jsonl), and the loop over
 * its lines.
 *
 * A line has one of four members: "prompt" is a user message as with -p, "messages" (with
 * optional "tools") is a chat as with --chat, "text" is a text as with --raw -p, and "ids" is an
 * array of token ids as with --ids.
 *
 * A line may also have "id", "n" (-n), "seed" (--seed), "answer_prefix", with which the answer
 * begins, and "until", an array of texts before which the answer ends. A "text" may have a
 * "continuation", a text, and "ids" may have one that is an array of ids. Its tokens are fed
 * instead of an answer, and the result is their log-likelihood. The answer to "ids" has "ids" too.
 * "task" is an object for `kvfate tasks score`, which has no effect here.
 *
 * A "question" goes with "context", which it follows as with --ask, or with "text", which it
 * follows at once. The text "join" takes the place of the empty line between context and question.
 * "questions", an array, makes a line of each of its texts, with -1, -2, ... behind the id.
 *
 * All lines are checked before the first one is run. The id names the answer or the trace of a
 * line. Without an id, it is the line number with at least six digits.
 */
#ifndef KVF_CLI_JSONL_H
#define KVF_CLI_JSONL_H

#include "base/progress.h"
#include "cli/commands.h"
#include "cli/crew.h"
#include "engine/experiment/prompt.h"
#include "cli/shard.h"

enum { JSONL_ID = 100 }; /* maximum bytes of an id */

/* A line of the file. */
struct jsonl_line {
    char id[JSONL_ID + 1];
    int number;                /* line number in the file, from 1 */
    struct json *root;         /* owned; the pointers below are borrowed from it */
    bool own;                  /* frees root; false for further questions of a line */
    bool more;                 /* the next line is another question about the same context */
    const char *prompt, *text; /* exactly one of prompt, text, messages and ids is not NULL */
    const char *question;      /* about prompt or text; or NULL */
    char *messages;            /* owned copy of the line if it has "messages"; otherwise NULL */
    const char *join;          /* text between context and question; NULL: an empty line */
    const char *answer_prefix; /* beginning of the answer; or NULL */
    const struct json *ids;    /* array of the tokens of the prompt */
    /* continuation of `text` or `ids`, a text or an array, that is scored instead of an answer; or
     * NULL */
    const struct json *continuation;
    const struct json *until; /* array of texts that end the answer; or NULL */
    int64_t n, seed;          /* -1 if not given */
};

/* Receives the result of a line: KVF_OK, KVF_E_CANCEL after a signal, or an error. Returns KVF_OK,
 * or an error that ends the loop. */
typedef int (*jsonl_done)(void *loop, const struct jsonl_line *line, int err, struct kvf_diag *d);

/* A batch: its options, the functions of the command, and its lines. */
struct jsonl {
    const char *file, *part; /* options --jsonl and --shard */
    int64_t together, room;  /* options --together, and --room in GiB; 0 if not given */
    /* set by the command */
    const char *folder; /* folder of the traces ID.kvf; NULL if no traces are written */
    bool overwrite;     /* existing traces are replaced; otherwise they are checked and skipped */
    bool quiet;         /* no progress and no final summary line */
    /* `make` starts a line; out is the path of its trace, or NULL. It reports finished lines to
     * `done` in their order. `rest` finishes all lines that are still open. Both return the first
     * error of `done`. */
    int (*make)(void *ctx, const struct jsonl_line *line, const char *out, jsonl_done done,
                void *loop);
    int (*rest)(void *ctx, jsonl_done done, void *loop);
    /* Checks that an existing trace of a line belongs to the same run. Returns KVF_OK, or an error
     * that describes the difference. */
    int (*check)(void *ctx, const struct jsonl_line *line, const char *trace, struct kvf_diag *d);
    void *ctx;

    /* set by jsonl_open() */
    struct shard shard;
    struct crew *crew;   /* its cells are lines */
    struct progress bar; /* counts lines; `make` and `rest` report partial progress */
    int64_t told;        /* lines that are done or have failed */
    int64_t cut;         /* answers that the context limit ended; `make` and `rest` count them */
    struct jsonl_line *line; /* [n_lines] owned */
    size_t n_lines, cap;
};

extern const struct opt jsonl_options[]; /* fill a struct jsonl */

/* Reads and checks the file, and creates the folder if it is missing. Returns KVF_OK, KVF_E_ARG
 * for usage errors, or another error with a sentence that names the file and the line. */
int jsonl_open(struct jsonl *b, struct kvf_diag *d);
void jsonl_close(struct jsonl *b); /* accepts a zeroed struct */

/* Reads an array of token ids. The caller frees *ret_ids with mem_free(), also after an error.
 * Returns KVF_OK, KVF_E_NOMEM, or KVF_E_FORMAT with a sentence that names the value. */
int jsonl_ids(const struct json *array, int vocab, int32_t **ret_ids, int *ret_n,
              struct kvf_diag *d);

/* Runs the lines of the shard in their order, several at a time, together with the other ranks of
 * the crew. If a line fails, prints why and continues with the other lines. Exhausted memory or
 * disk space ends the loop. Prints the reason of a failure and returns the exit status. */
int jsonl_run(const struct command *self, struct jsonl *b);

#endif
