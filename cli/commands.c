/* commands.c - collects the commands, parses the command line, and runs a command. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <kvf/version.h>

#include "analyzers/analyzer.h"
#include "base/mem.h"
#include "cli/analysis.h"
#include "cli/commands.h"
#include "cli/environment.h"
#include "cli/open_traces.h"
#include "cli/stream.h"
#include "cli/package.h"

#define X(name) extern const struct command command_##name;
#include "cli/commands.list"
#undef X

static const struct command *const own_commands[] = {
#define X(name) &command_##name,
#include "cli/commands.list"
#undef X
    NULL,
};

bool command_at(int i, struct command *ret)
{
    const char *group = "";
    for (int k = 0; own_commands[k]; k++) {
        bool analyses = strcmp(group, own_commands[k]->group) != 0
                        && strcmp(own_commands[k]->group, ANALYSIS_GROUP) == 0;
        group = own_commands[k]->group;
        for (int a = 0; analyses && analyzer_table[a]; a++)
            if (i-- == 0) {
                *ret = analysis_command(analyzer_table[a]);
                return true;
            }
        if (i-- == 0) {
            *ret = *own_commands[k];
            return true;
        }
    }
    return false;
}

bool command_find(const char *name, struct command *ret)
{
    struct command c;
    for (int i = 0; command_at(i, &c); i++)
        if (strcmp(c.name, name) == 0) {
            *ret = c;
            return true;
        }
    return false;
}

struct exit_status command_exit(const struct command *c, int i)
{
    static const struct exit_status usual[] = {
        {"0", "The command succeeded."},
        {"1", "It failed: a file could not be read or written, is damaged, or lacks what was asked "
              "for."},
        {"2", "The command line was wrong; nothing was done."},
        EXIT_PARTIAL,
    };
    bool traces = c->operands.kind && strcmp(c->operands.kind, "trace") == 0;
    const int USUAL = sizeof usual / sizeof *usual - !traces;
    int beside = USUAL;
    for (int k = 0; c->exits && c->exits[k].status; k++) {
        bool another = true;
        for (int u = 0; u < USUAL; u++)
            if (strcmp(c->exits[k].status, usual[u].status) == 0) {
                another = false;
                if (u == i)
                    return c->exits[k];
            }
        if (another && beside++ == i)
            return c->exits[k];
    }
    return i < USUAL ? usual[i] : (struct exit_status){NULL, NULL};
}

void command_options(const struct command *c, const struct analyzer *a, struct command_options *ret)
{
    static const struct opt none[] = {{.type = OPT_END}};
    ret->list[0] = (struct opt){OPT_GROUP, .group = c->options ? c->options : none};
    ret->list[1] = (struct opt){OPT_GROUP, .name = "own", .offset = c->own_at,
                                .group = a ? a->options : NULL};
    ret->list[2] = (struct opt){.type = OPT_END};
}

/* ---- help and errors */

static int overview(FILE *out, int status)
{
    const char *group = "";
    struct command c;
    fprintf(out, "usage: kvfate COMMAND [options]\n");
    for (int i = 0; command_at(i, &c); i++) {
        if (strcmp(group, c.group) != 0)
            fprintf(out, "\n%s:\n", c.group);
        group = c.group;
        fprintf(out, "  %-18s %s\n", c.name, c.summary);
    }
    fprintf(out, "\n'kvfate COMMAND -h' explains one; 'kvfate --version' names this release.\n");
    return status;
}

void command_usage(const struct command *c, struct buf *b)
{
    buf_printf(b, "kvfate %s", c->name);
    if (c->operands.shown)
        buf_printf(b, " %s", c->operands.shown);
    if (c->needs)
        buf_printf(b, " %s", c->needs);
    if (c->options)
        buf_str(b, " [options]");
}

static int help(const struct command *self, const struct opt *list)
{
    struct buf usage = {0};
    command_usage(self, &usage);
    printf("usage: %s\n\n%s.\n\n", usage.data ? usage.data : self->name, self->summary);
    buf_finish(&usage);
    opt_print(list, stdout);
    printf("\nexample:\n  %s\n", self->example);
    return EXIT_OK;
}

/* Returns KVF_OK, or KVF_E_ARG with the usage line if n operands are too few or too many. */
static int check_operands(const struct command *self, int n, struct kvf_diag *d)
{
    const struct operands *o = &self->operands;
    if (n >= o->min && (o->max < 0 || n <= o->max))
        return KVF_OK;
    struct buf usage = {0};
    command_usage(self, &usage);
    kvf_fail(d, KVF_E_ARG, "%s; usage: %s", n < o->min ? "a file is missing" : "too many operands",
             usage.data ? usage.data : self->name);
    buf_finish(&usage);
    return KVF_E_ARG;
}

/* ---- dispatch */

/* Parses the arguments of a command into its request and runs it. argv[0] is its name. Returns the
 * exit status. */
static int run(const struct command *self, void *request, int argc, char **argv)
{
    const struct analyzer *a = self->analyzer;
    bool late = self->first_is_analysis && argc > 1 && argv[1][0] == '-';
    if (self->first_is_analysis && argc > 1)
        a = analyzer_find(argv[1]);
    struct command_options o;
    command_options(self, a, &o);
    struct kvf_diag d = {""};
    bool asks = false;
    int n = 0, err = opt_defaults(o.list, request, &d);
    if (!err)
        err = opt_parse(o.list, request, argc, argv, &n, &asks, &d);
    if (!err && asks)
        return help(self, o.list);
    if (!err && late) /* the options of the analysis are unknown before its name */
        err = kvf_fail(&d, KVF_E_ARG, "name the analysis first: kvfate %s ANALYSIS ...",
                       self->name);
    if (!err)
        err = check_operands(self, n, &d);
    if (!err && self->operands.kind && strcmp(self->operands.kind, "trace") == 0)
        err = stream_operands(n, argv + 1, &d);
    return err ? command_end(self, err, &d) : self->run(self, request, n, argv + 1);
}

static int dispatch(const struct command *self, int argc, char **argv)
{
    struct kvf_diag d = {""};
    void *request = MEM_NEW(char, self->request_bytes + 1);
    int status = request ? run(self, request, argc, argv) : command_end(self, KVF_E_NOMEM, &d);
    mem_free(request);
    return status;
}

static bool one_of(const char *word, const char *a, const char *b, const char *c)
{
    return strcmp(word, a) == 0 || strcmp(word, b) == 0 || strcmp(word, c) == 0;
}

/* Passes the arguments of a command to the Python package, unless they ask for help. */
static int run_in_package(const struct command *self, int argc, char **argv)
{
    struct kvf_diag d = {""};
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (one_of(argv[i], "-h", "--help", "-h")) {
            char *words[] = {argv[0], "-h", NULL};
            return dispatch(self, 2, words);
        }
    return command_end(self, package_run(argc, argv, &d), &d);
}

static int unknown(const char *name)
{
    const char *near = NULL;
    int best = (int)(strlen(name) + 2) / 3 + 1;
    struct command c;
    for (int i = 0; command_at(i, &c); i++) {
        int far = opt_distance(c.name, name);
        if (far < best) {
            best = far;
            near = c.name;
        }
    }
    fprintf(stderr, "kvfate: no command '%s'%s%s%s; 'kvfate help' lists them\n", name,
            near ? " (did you mean '" : "", near ? near : "", near ? "'?)" : "");
    return EXIT_USAGE;
}

static int choose(int argc, char **argv)
{
    struct command c;
    struct kvf_diag d = {""};
    const char *name = argc > 1 ? argv[1] : NULL;
    if (!name)
        return overview(stderr, EXIT_USAGE);
    if (strcmp(name, "help") == 0 && argc > 2 && command_find(argv[2], &c)) {
        char *words[] = {argv[2], "-h", NULL};
        return dispatch(&c, 2, words);
    }
    if (strcmp(name, "help") == 0 && argc > 2)
        return unknown(argv[2]);
    if (one_of(name, "help", "--help", "-h"))
        return overview(stdout, EXIT_OK);
    if (strcmp(name, "--version") == 0) {
        printf("kvfate %s\n", kvf_version());
        return EXIT_OK;
    }
    if (!command_find(name, &c))
        return unknown(name);
    int err = environment_check(&d);
    if (err)
        return command_end(&c, err, &d);
    return c.in_package ? run_in_package(&c, argc - 1, argv + 1) : dispatch(&c, argc - 1, argv + 1);
}

int commands_main(int argc, char **argv)
{
    int status = choose(argc, argv);
    if ((fflush(stdout) != 0 || ferror(stdout)) && status == EXIT_OK) {
        fprintf(stderr, "kvfate: standard output: %s\n", strerror(errno));
        status = EXIT_FAILED;
    }
    return status == EXIT_OK && traces_partial() ? EXIT_LOST : status;
}
