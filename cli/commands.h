/* commands.h - what the program does: one struct for each command.
 *
 * The struct says all that is known of a command: dispatch, `-h`, usage lines, the manual page's
 * NAME, SYNOPSIS, OPTIONS and EXIT STATUS, the overviews of the documentation and `kvfate describe`
 * are made from it.
 *
 * To add a command NAME (tools/new.py command NAME "summary" writes all of these):
 *   1. cli/cmd_NAME.c with a struct that holds its options' values, a static table of options
 *      (base/opt.h), a static function of the shape of `run` below, and at the end
 *      `const struct command command_NAME = {...}`.  Results go to the standard output, all else to
 *      the standard error.
 *   2. cli/commands.list: its line, where the overview shall show it.
 *   3. docs/man/kvfate-NAME.1: what it does, its own options at length, examples; the rest is
 *      made (docs/man_pages.py says what).
 *   4. tests/cli/test_NAME.py: what it prints, each way to fail, the exit statuses.
 * The check `tests/lint/check_docs.py` fails until the page is there, and the check
 * `tests/lint/check_man_examples.py` runs the example.
 *
 * An analysis is a command by itself (cli/analysis.c) and has no line in the list.  A command that
 * is written in Python has its line there, and an entry in python/kvfate/commands.py, whose head
 * says what else it needs, in place of cmd_NAME.c. */
#ifndef KVF_CLI_COMMANDS_H
#define KVF_CLI_COMMANDS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/opt.h"

struct analyzer;

enum { EXIT_OK = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_LOST = 3 };

/* An exit status and when a command ends with it: a sentence that begins with a capital. */
struct exit_status {
    const char *status; /* "3"; "130, 143" */
    const char *when;
};

/* Of every command whose operands are traces; other commands that read some list it. */
#define EXIT_PARTIAL                                                                               \
    {                                                                                              \
        "3",                                                                                       \
            "It succeeded, but a trace that it read was not closed or holds no steps: the result " \
            "is of less than a whole run, and a line on the standard error names the trace."       \
    }

/* What a command takes beside options. */
struct operands {
    const char *shown; /* as usage shows them: "A.kvf B.kvf"; NULL: none */
    const char *kind;  /* "trace", "table", "gates", ...; NULL: none */
    int least, most;   /* how many; most -1: any number */
};

struct command {
    const char *name;
    const char *group;   /* heading in the overview; equal groups are adjacent */
    const char *summary; /* one line without a full stop */
    const char *example; /* one line that runs in a folder where the examples before it ran */
    const char *needs;   /* options without which nothing runs, as usage shows them; NULL: none */
    struct operands operands;

    const struct opt *options; /* NULL: none */
    size_t request_bytes;      /* size of the struct that they fill */
    /* Options of an analysis that follow them: of this analyzer, or of the one that the first
     * operand names.  Their values are a struct analyzer_options at own_at in the request. */
    const struct analyzer *analyzer;
    bool first_is_analysis;
    size_t own_at;

    /* Statuses with another meaning than usual (0, 1, 2; of traces 3), or beside them; ends with
     * .status NULL.
     */
    const struct exit_status *exits;

    /* It lives in the Python package, whose table python/kvfate/commands.py says all of the above:
     * the program knows its help and hands its words on. */
    bool in_package;

    /* Does it; NULL of those in the package.  request was zeroed and filled from defaults and the
     * command line, and belongs to the caller; operand[0 .. n - 1] are as many as `operands`
     * allows.  Returns the exit status. */
    int (*run)(const struct command *self, void *request, int n, char **operand);
};

/* The commands in the order of the overview, analyses included: false beyond the last. */
bool command_at(int i, struct command *ret);
/* The command of a name; false: there is none. */
bool command_find(const char *name, struct command *ret);

/* All options of a command, of the analyzer a behind its own (NULL: none). */
struct command_options {
    struct opt list[3];
};
void command_options(const struct command *c, const struct analyzer *a,
                     struct command_options *ret);

/* The i-th of the exit statuses of a command, the usual ones included; status NULL beyond the last.
 */
struct exit_status command_exit(const struct command *c, int i);

/* Appends "kvfate NAME OPERANDS NEEDS [options]". */
void command_usage(const struct command *c, struct buf *b);

/* Says on the standard error why a command failed, "kvfate NAME: text"; nothing for KVF_OK.
 * (command_end.c: commands stand on it, and the table in commands.c stands on them.) */
void command_say(const struct command *self, int err, const struct kvf_diag *d);
/* Says one line on the standard error, "kvfate NAME: text"; names in it are shown as sentences of
 * failure show them. */
KVF_PRINTF(2, 3) void command_tell(const char *name, const char *fmt, ...);
/* What is said on the standard error, and the exit status, of a command whose functions returned
 * err: nothing and EXIT_OK for KVF_OK; EXIT_USAGE for KVF_E_ARG; else EXIT_FAILED. */
int command_end(const struct command *self, int err, const struct kvf_diag *d);

int commands_main(int argc, char **argv);

#endif
