/* commands.h - the table of commands, with one struct per command.
 *
 * The struct declares everything about a command. The program derives from it the dispatch, `-h`,
 * the usage lines, the sections NAME, SYNOPSIS, OPTIONS and EXIT STATUS of the manual page, the
 * overviews of the documentation and `kvfate list all`.
 *
 * To add a command NAME (tools/new.py command NAME "summary" writes all of these files):
 *   1. cli/cmd_NAME.c with a struct for the values of the options, a static table of options
 *      (base/opt.h), a static function with the signature of `run` below, and at the end
 *      `const struct command command_NAME = {...}`.  Results are written to the standard output,
 *      everything else to the standard error.
 *   2. cli/commands.list: the line of the command, at its place in the overview. The command is
 *      `kvfate NAME`, or has another place by a line in cli/groups.list.
 *   3. docs/man/kvfate-NAME.1: the description of the command and of its options, and examples.
 *      docs/man_pages.py makes the other sections and describes them.
 *   4. tests/cli/test_NAME.py: tests of the output, of each failure and of the exit statuses.
 * The check `tests/lint/check_docs.py` fails until the page exists, and the check
 * `tests/lint/check_man_examples.py` runs the example.
 *
 * Each analysis is a command without a line in the list (cli/analysis.c). A command that is
 * written in Python has a line in the list, and instead of cmd_NAME.c an entry in
 * python/kvfate/commands.py. The head of that file describes what else the command needs.
 */
#ifndef KVF_CLI_COMMANDS_H
#define KVF_CLI_COMMANDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "base/opt.h"
#include "cli/groups.h"

struct analyzer;

enum { EXIT_OK = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_LOST = 3 };

/* An exit status of a command and its meaning, a sentence that begins with a capital letter. */
struct exit_status {
    const char *status; /* "3", or several as in "130, 143" */
    const char *when;
};

/* Exit status 3 of commands that read traces. Commands with traces as operands have it without
 * listing it; other commands that read traces list it in `exits`. */
#define EXIT_PARTIAL                                                                               \
    {                                                                                              \
        "3", "It succeeded, but a trace that it read was not closed or has no steps: the result "  \
             "is for an incomplete run, and a line on the standard error names the trace."         \
    }

/* The operands of a command. */
struct operands {
    /* as the usage line shows them, such as "A.kvf B.kvf"; NULL if there are no operands */
    const char *shown;
    const char *kind; /* "trace", "table", "gates", ...; NULL if there are no operands */
    int min, max;     /* minimum and maximum number; max is -1 if there is no maximum */
};

/* A command of the program: its declaration and the function that runs it. */
struct command {
    /* In the struct of a command, its name in the list. command_at() replaces it by the words that
     * call the command, such as "survival --as hazard", and keeps the name in `key`. */
    const char *name, *key;
    const char *group;   /* a group of cli/groups.list */
    const char *summary; /* one line without a full stop */
    /* one command line that runs in a folder where the preceding examples ran */
    const char *example;
    /* required options, as the usage line shows them; NULL if no option is required */
    const char *needs;
    struct operands operands;

    const struct opt *options; /* NULL if the command has no options */
    size_t request_bytes;      /* size of the struct that the options fill */
    /* Options of an analysis that follow the options of the command. They belong to this analyzer,
     * or if first_is_analysis is set, to the analyzer that the first operand names. Their values
     * are a struct analyzer_options at offset own_at of the request. */
    const struct analyzer *analyzer;
    bool first_is_analysis;
    size_t own_at;

    /* Exit statuses that differ from the usual ones (0, 1, 2, and 3 for traces) or are added to
     * them. An entry with .status NULL ends the list. NULL if there are none. */
    const struct exit_status *exits;

    /* The Python package runs the command. The table in python/kvfate/commands.py declares it.
     * This program prints its help and passes its arguments on. */
    bool in_package;

    /* Runs the command; NULL if in_package is set. The request was zeroed and then filled from the
     * defaults and the command line. The caller owns it. operand[0 .. n - 1] are as many operands
     * as `operands` allows. Returns the exit status. */
    int (*run)(const struct command *self, void *request, int n, char **operand);
};

/* Returns the i-th command in the order of the overview, analyses included. Returns false if i is
 * beyond the last command. */
bool command_at(int i, struct command *ret);
/* Finds a command by its name in the lists. Returns false if no command has this name. */
bool command_find(const char *key, struct command *ret);

/* All options of a command: those that choose between commands at its place, its own, those of the
 * analyzer a (NULL if there is no analyzer), and the common options that it does not declare. */
enum { COMMON_OPTIONS = 6 };
struct command_options {
    struct place_options place;
    struct opt common[COMMON_OPTIONS + 1]; /* those of cli/common.h */
    struct opt list[5];
};
void command_options(const struct command *c, const struct analyzer *a,
                     struct command_options *ret);

/* Returns the i-th exit status of a command, the usual ones included. Its member status is NULL
 * beyond the last one. */
struct exit_status command_exit(const struct command *c, int i);

/* Appends "kvfate NAME OPERANDS NEEDS [options]". */
void command_usage(const struct command *c, struct buf *b);

/* Prints on the standard error why a command failed, as "kvfate NAME: text", and does nothing if
 * err is KVF_OK. It is defined in command_end.c because commands call it and the table in
 * commands.c refers to the commands. */
void command_print_error(const struct command *self, int err, const struct kvf_diag *d);
/* Prints the line "kvfate NAME: text" on the standard error. Control characters of file names in
 * it are escaped as in messages of failures. */
KVF_PRINTF(2, 3) void command_print(const char *name, const char *fmt, ...);
/* From here on prints only failures of commands on the standard error. */
int command_quiet(struct kvf_diag *d);
/* Returns the stream for failures, also after command_quiet(). */
FILE *command_errors(void);
/* Prints the failure of a command, if err is one, and returns its exit status: EXIT_OK for KVF_OK,
 * EXIT_USAGE for KVF_E_ARG, EXIT_FAILED for any other error. */
int command_end(const struct command *self, int err, const struct kvf_diag *d);

/* Runs the command that the arguments of main() name. Returns the exit status of the program. */
int commands_main(int argc, char **argv);

#endif
