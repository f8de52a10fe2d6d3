/* commands.c - collects the commands, parses the command line, and runs a command. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <kvf/version.h>

#include "analyzers/analyzer.h"
#include "base/mem.h"
#include "cli/analysis.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "cli/environment.h"
#include "cli/folders.h"
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

/* Returns a command under the words that call it, in the group of its top-level command. */
static struct command placed(const struct command *c)
{
    struct command r = *c;
    char top[64];
    r.key = c->name;
    r.name = place_words(c->name);
    snprintf(top, sizeof top, "%.*s", (int)strcspn(r.name, " "), r.name);
    if (top_group(top))
        r.group = top_group(top);
    return r;
}

bool command_at(int i, struct command *ret)
{
    int own = sizeof own_commands / sizeof *own_commands - 1;
    if (i < own) {
        *ret = placed(own_commands[i]);
        return true;
    }
    for (int a = 0; analyzer_table[a]; a++)
        if (own + a == i) {
            struct command c = analysis_command(analyzer_table[a]);
            *ret = placed(&c);
            return true;
        }
    return false;
}

bool command_find(const char *key, struct command *ret)
{
    struct command c;
    for (int i = 0; command_at(i, &c); i++)
        if (strcmp(c.key, key) == 0) {
            *ret = c;
            return true;
        }
    return false;
}

struct exit_status command_exit(const struct command *c, int i)
{
    static const struct exit_status usual[] = {
        {"0", "The command succeeded."},
        {"1",
         "It failed: a file could not be read or written, is damaged, or lacks requested data."},
        {"2", "The command line was wrong; no file was changed."},
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

/* Returns the offset of struct common in the memory of a command's request. */
static size_t common_at(const struct command *c)
{
    size_t unit = _Alignof(max_align_t);
    return (c->request_bytes + unit - 1) / unit * unit;
}

void command_options(const struct command *c, const struct analyzer *a, struct command_options *ret)
{
    static const struct opt none[] = {{.type = OPT_END}};
    place_options(c->name, &ret->place);
    common_options(c, a, ret->common);
    ret->list[0] = (struct opt){OPT_GROUP, .group = ret->place.list};
    ret->list[1] = (struct opt){OPT_GROUP, .group = c->options ? c->options : none};
    ret->list[2] = (struct opt){OPT_GROUP, .name = "own", .offset = c->own_at,
                                .group = a ? a->options : NULL};
    ret->list[3] = (struct opt){OPT_GROUP, .name = "common", .offset = common_at(c),
                                .group = ret->common};
    ret->list[4] = (struct opt){.type = OPT_END};
}

/* ---- help and errors */

/* Returns true if the word is the first word of a command. */
static bool is_top(const char *word)
{
    struct command c;
    for (int i = 0; command_at(i, &c); i++)
        if (place_under(c.name, word))
            return true;
    return false;
}

/* Prints the commands under a top-level command, one line each. */
static void print_under(const char *top, FILE *out)
{
    struct command c;
    for (int others = 0; others < 2; others++)
        for (int i = 0; command_at(i, &c); i++)
            if (place_under(c.name, top) && (strcmp(c.name, top) != 0) == others)
                fprintf(out, "  %-27s %s\n", c.name, c.summary);
}

static void print_top(const char *top, FILE *out)
{
    const char *summary = top_summary(top);
    struct command c;
    for (int i = 0; !summary && command_at(i, &c); i++)
        if (strcmp(c.name, top) == 0)
            summary = c.summary;
    fprintf(out, "  %-10s %s\n", top, summary ? summary : "");
}

/* Prints the top-level commands of a group with their summaries, or all of their commands. */
static void print_group(const char *group, bool all, FILE *out)
{
    char top[64], shown[64][64];
    struct command c;
    int n = 0, k;
    for (int i = 0; command_at(i, &c); i++) {
        snprintf(top, sizeof top, "%.*s", (int)strcspn(c.name, " "), c.name);
        for (k = 0; k < n && strcmp(shown[k], top) != 0; k++)
            ;
        if (k < n || strcmp(c.group, group) != 0 || n == 64)
            continue;
        memcpy(shown[n++], top, sizeof top);
        if (all)
            print_under(top, out);
        else
            print_top(top, out);
    }
}

/* Prints the first page: frequent commands, and the groups. */
static int front_page(FILE *out, int status)
{
    fprintf(out, "usage: kvfate COMMAND [options]\n\n");
    for (int i = 0; front_table[i]; i++)
        print_top(front_table[i], out);
    fprintf(out, "\nMore commands are in these groups ('kvfate help GROUP'):\n");
    for (int i = 0; group_table[i].name; i++)
        fprintf(out, "  %-10s %s\n", group_table[i].name, group_table[i].text);
    fprintf(out, "\n'kvfate COMMAND -h' explains a command, 'help --man COMMAND' shows its page, "
                 "'help' lists "
                 "all.\n");
    return status;
}

static int overview(void)
{
    printf("usage: kvfate COMMAND [options]\n");
    for (int i = 0; group_table[i].name; i++) {
        printf("\n%s: %s\n", group_table[i].name, group_table[i].text);
        print_group(group_table[i].name, true, stdout);
    }
    printf("\n'kvfate COMMAND -h' explains one; 'kvfate --version' names this release.\n");
    return EXIT_OK;
}

/* Prints the kinds and subcommands of a top-level command that does nothing by itself. */
static int print_subcommands(const char *top, FILE *out, int status)
{
    fprintf(out, "usage: kvfate %s COMMAND [options]\n\n%s.\n\n", top, top_summary(top));
    print_under(top, out);
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
    struct command c;
    char top[64];
    int family = 0;
    command_usage(self, &usage);
    printf("usage: %s\n\n%s.\n\n", usage.data ? usage.data : self->name, self->summary);
    buf_finish(&usage);
    opt_print(list, stdout);
    printf("\nexample:\n  %s\n", self->example);
    snprintf(top, sizeof top, "%.*s", (int)strcspn(self->name, " "), self->name);
    for (int i = 0; command_at(i, &c); i++)
        family += place_under(c.name, top);
    if (family > 1) {
        printf("\nrelated:\n");
        print_under(top, stdout);
    }
    return EXIT_OK;
}

/* Returns KVF_OK, or KVF_E_ARG with a sentence if n operands are too few or too many. A command
 * that takes a prompt and no operands suggests the option for it. */
static int check_operands(const struct command *self, const struct opt *list, int n, char **operand,
                          struct kvf_diag *d)
{
    const struct operands *o = &self->operands;
    size_t at;
    if (n >= o->min && (o->max < 0 || n <= o->max))
        return KVF_OK;
    if (!o->max && n == 1 && opt_find(list, "prompt", &at) && opt_find(list, "file", &at)) {
        const char *end = strrchr(operand[0], '.');
        bool name = end && end[1] && strlen(end) <= 6 && !strpbrk(operand[0], " \t\n");
        bool file = name || access(operand[0], R_OK) == 0;
        return kvf_fail(d, KVF_E_ARG, "'%.200s' has no option; %s: kvfate %s %s '%.200s'",
                        operand[0], file ? "a prompt in a file needs -f" : "a prompt needs -p",
                        self->name, file ? "-f" : "-p", operand[0]);
    }
    struct buf usage = {0};
    command_usage(self, &usage);
    const char *no_trace = !n && o->kind && strcmp(o->kind, "trace") == 0
                               ? "a trace is missing, such as 'kvfate run -p TEXT -o X.kvf' records"
                               : "a file is missing";
    kvf_fail(d, KVF_E_ARG, "%s; usage: %s", n < o->min ? no_trace : "too many operands",
             usage.data ? usage.data : self->name);
    buf_finish(&usage);
    return KVF_E_ARG;
}

/* ---- dispatch */

/* Parses the arguments of a command into its request and runs it. argv[0] is its name. Returns the
 * exit status. */
static int parse_and_run(const struct command *self, const struct opt *list, void *request,
                         int argc, char **argv)
{
    bool late = self->first_is_analysis && argc > 1 && argv[1][0] == '-';
    struct kvf_diag d = {""};
    bool asks = false;
    int n = 0, err = opt_defaults(list, request, &d);
    if (!err)
        err = opt_parse(list, request, argc, argv, &n, &asks, &d);
    if (!err && asks)
        return help(self, list);
    if (!err && late) /* the options of the analysis are unknown before its name */
        err = kvf_fail(&d, KVF_E_ARG, "name the analysis first: kvfate %s ANALYSIS ...",
                       self->name);
    if (!err)
        err = check_operands(self, list, n, argv + 1, &d);
    if (!err && self->operands.kind && strcmp(self->operands.kind, "trace") == 0)
        err = stream_operands(n, argv + 1, &d);
    if (err)
        return command_end(self, err, &d);
    struct common *common = (struct common *)((char *)request + common_at(self));
    err = common_begin(common, argv + 1, n, &d);
    int status = err ? command_end(self, err, &d) : self->run(self, request, n, argv + 1);
    return common_end(self, common, status);
}

/* Prints the new words of a command that was called by its name in the lists. Returns the exit
 * status, or EXIT_OK if the name is no such name. `before` is "" or "corpus ". */
static int renamed(const char *before, const char *key)
{
    struct command c;
    if (!command_find(key, &c) || strcmp(c.name, key) == 0)
        return EXIT_OK;
    fprintf(stderr, "kvfate: '%s%s' is now 'kvfate %s%s'\n", before, key, before, c.name);
    return EXIT_USAGE;
}

/* Returns true if the word is an option of the command whose value is the next word. */
static bool takes_value(const struct command *c, const char *word)
{
    struct command_options o;
    struct opt_walk w;
    command_options(c, c->analyzer, &o);
    w = opt_walk(o.list);
    for (const struct opt *x = opt_next(&w); x; x = opt_next(&w))
        if (x->type != OPT_FLAG && x->type != OPT_BARRED
            && ((x->name && word[1] == '-' && strcmp(x->name, word + 2) == 0)
                || (x->short_name && word[1] == x->short_name && !word[2])))
            return true;
    return false;
}

/* See struct place_context. */
static bool under_takes_value(const char *top, const char *word)
{
    struct command c;
    for (int i = 0; command_at(i, &c); i++)
        if (place_under(c.name, top) && takes_value(&c, word))
            return true;
    return false;
}

/* Finds the analysis in the first operand of a command, by the words that call it. argv[1] becomes
 * its name in analyzers.list. Returns the exit status, and EXIT_OK if no analysis has this name. */
static int find_analysis(const struct command *self, int *argc, char **argv,
                         const struct analyzer **ret)
{
    struct kvf_diag d = {""};
    const char *key;
    int n = *argc - 1;
    if (!is_top(argv[1])) {
        char before[64];
        snprintf(before, sizeof before, "%s ", self->name);
        return analyzer_find(argv[1]) ? renamed(before, argv[1]) : EXIT_OK;
    }
    struct place_context x = {self->name, under_takes_value};
    int err = place_find(&n, argv + 1, &x, &key, &d);
    if (err)
        return command_end(self, err, &d);
    *argc = n + 1;
    argv[1] = (char *)key;
    *ret = analyzer_find(key);
    return EXIT_OK;
}

/* Runs a command with its arguments. Returns the exit status. */
static int run(const struct command *self, void *request, int argc, char **argv)
{
    const struct analyzer *a = self->analyzer;
    int status = EXIT_OK;
    if (self->first_is_analysis && argc > 1 && argv[1][0] != '-')
        status = find_analysis(self, &argc, argv, &a);
    if (status != EXIT_OK)
        return status;
    struct command_options o;
    command_options(self, a, &o);
    status = parse_and_run(self, o.list, request, argc, argv);
    opt_finish(o.list, request);
    return status;
}

static int dispatch(const struct command *self, int argc, char **argv)
{
    struct kvf_diag d = {""};
    void *request = MEM_NEW(char, common_at(self) + sizeof(struct common));
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

/* Replaces *near by the words if `name` is nearer to a word than *best. */
static void come_nearer(const char *name, const char *word, const char *words, const char **near,
                        int *best)
{
    int far = opt_distance(word, name);
    if (far < *best) {
        *best = far;
        *near = words;
    }
}

/* Returns the words of the command that a wrong name likely means; NULL if none is near. */
static const char *meant(const char *name)
{
    const char *near = NULL;
    int best = (int)(strlen(name) + 2) / 3 + 1;
    struct command c;
    for (int i = 0; command_at(i, &c); i++) {
        if (!strchr(c.name, ' '))
            come_nearer(name, c.name, c.name, &near, &best);
        come_nearer(name, c.key, c.name, &near, &best);
    }
    for (const struct named_text *s = synonym_table; s->name; s++)
        come_nearer(name, s->name, s->text, &near, &best);
    return near;
}

static int unknown(const char *name)
{
    if (renamed("", name) != EXIT_OK)
        return EXIT_USAGE;
    const char *near = meant(name);
    if (name[0] == '-')
        return fprintf(stderr,
                       "kvfate: option %s must follow the command; write 'kvfate COMMAND %s'\n",
                       name, name)
                       < 0
                   ? EXIT_FAILED
                   : EXIT_USAGE;
    fprintf(stderr, "kvfate: no command '%s'%s%s%s; 'kvfate help' lists them\n", name,
            near ? " (did you mean '" : "", near ? near : "", near ? "'?)" : "");
    return EXIT_USAGE;
}

/* Reports a top-level command without a subcommand, or with an unknown one. */
static int subcommand(int argc, char **argv)
{
    if (argc > 1 && one_of(argv[1], "-h", "--help", "help"))
        return print_subcommands(argv[0], stdout, EXIT_OK);
    if (argc < 2)
        return print_subcommands(argv[0], stderr, EXIT_USAGE);
    const char *near = NULL;
    int best = (int)(strlen(argv[1]) + 2) / 3 + 1;
    struct command c;
    for (int i = 0; command_at(i, &c); i++)
        if (place_under(c.name, argv[0]))
            come_nearer(argv[1], c.name + strlen(argv[0]) + 1, c.name, &near, &best);
    fprintf(stderr, "kvfate: no command '%s %s'%s%s%s; 'kvfate help %s' lists them\n", argv[0],
            argv[1], near ? " (did you mean '" : "", near ? near : "", near ? "'?)" : "", argv[0]);
    return EXIT_USAGE;
}

/* Runs the command that argv[0] and the following words call. */
static int call(int argc, char **argv)
{
    struct command c;
    struct kvf_diag d = {""};
    const char *key;
    if (!is_top(argv[0]))
        return unknown(argv[0]);
    struct place_context x = {argv[0], under_takes_value};
    int err = place_find(&argc, argv, &x, &key, &d);
    if (err)
        return command_end(&(struct command){.name = argv[0]}, err, &d);
    if (!command_find(key, &c))
        return subcommand(argc, argv);
    c.name = argv[0]; /* a command can have two places, such as "eval merge" */
    err = environment_check(&d);
    if (err)
        return command_end(&c, err, &d);
    return c.in_package ? run_in_package(&c, argc, argv) : dispatch(&c, argc, argv);
}

/* `kvfate help --man WORD...`: shows the manual page of a command, or of the program without a
 * word. It looks in the folder of the build or of the installation to which this program belongs.
 * In a wheel, the program is PREFIX/lib/pythonX.Y/site-packages/kvfate/bin/kvfate, or
 * FOLDER/kvfate/bin/kvfate after `pip install --target FOLDER`. */
static int manual(int argc, char **argv)
{
    const struct command self = {.name = "help --man"};
    const char *word = argc ? argv[0] : "";
    struct kvf_diag d = {""};
    struct buf tail = {0}, page = {0};
    int err = KVF_E_NOTFOUND;
    static const struct {
        int up;
        const char *folder;
    } places[] = {
        {1, "/docs"}, {1, "/share/man/man1"}, {2, "/share/man/man1"}, {5, "/share/man/man1"}};
    if (argc && !is_top(word))
        return unknown(word);
    for (size_t i = 0; err == KVF_E_NOTFOUND && i < sizeof places / sizeof *places; i++) {
        buf_clear(&tail);
        buf_clear(&page);
        buf_printf(&tail, "%s/kvfate%s%s.1", places[i].folder, argc ? "-" : "", word);
        err = tail.err ? tail.err : folder_beside(places[i].up, tail.data, &page);
    }
    if (!err)
        execlp("man", "man", "-l", page.data, (char *)NULL);
    if (!err)
        err = kvf_fail(&d, KVF_E_IO, "'man' cannot be started: %s; the page is %s", strerror(errno),
                       page.data);
    else if (err == KVF_E_NOTFOUND)
        kvf_fail(&d, err, "this installation has no manual pages; use 'kvfate %s%s-h'", word,
                 argc ? " " : "");
    buf_finish(&tail);
    buf_finish(&page);
    return command_end(&self, err, &d);
}

/* `kvfate help WORD...`: lists a group, or explains a command. */
static int help_on(int argc, char **argv)
{
    if (strcmp(argv[0], "--man") == 0)
        return manual(argc - 1, argv + 1);
    for (int i = 0; group_table[i].name; i++)
        if (strcmp(group_table[i].name, argv[0]) == 0) {
            printf("%s: %s\n", argv[0], group_table[i].text);
            print_group(argv[0], false, stdout);
            return EXIT_OK;
        }
    if (argc == 1 && top_summary(argv[0]))
        return print_subcommands(argv[0], stdout, EXIT_OK);
    char **words = MEM_NEW(char *, (size_t)argc + 1);
    if (!words)
        return EXIT_FAILED;
    memcpy(words, argv, (size_t)argc * sizeof *words);
    words[argc] = "-h";
    int status = call(argc + 1, words);
    mem_free(words);
    return status;
}

static int choose(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : NULL;
    if (!name)
        return front_page(stderr, EXIT_USAGE);
    if (strcmp(name, "help") == 0)
        return argc > 2 ? help_on(argc - 2, argv + 2) : overview();
    if (one_of(name, "-h", "--help", "-h"))
        return argc > 2 ? help_on(argc - 2, argv + 2) : front_page(stdout, EXIT_OK);
    if (strcmp(name, "--version") == 0) {
        printf("kvfate %s\n", kvf_version());
        return EXIT_OK;
    }
    return call(argc - 1, argv + 1);
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
