/* groups.c - finds the command that a command line calls, by the places in groups.list. */
#include "cli/groups.h"

#include <string.h>

#define GROUP(name, title)
#define FRONT(name)
#define TOP(top, group, summary)
#define FIRST(top, kind, command)
#define KIND(top, kind, command)
#define SUB(words, command)
#define FLAG(words, command, help)
#define MEANS(word, command)

#undef GROUP
#define GROUP(name, title) {#name, title},
const struct named_text group_table[] = {
#include "cli/groups.list"
    {NULL, NULL},
};
#undef GROUP
#define GROUP(name, title)

#undef MEANS
#define MEANS(word, command) {word, command},
const struct named_text synonym_table[] = {
#include "cli/groups.list"
    {NULL, NULL},
};
#undef MEANS
#define MEANS(word, command)

#undef FRONT
#define FRONT(name) #name,
const char *const front_table[] = {
#include "cli/groups.list"
    NULL,
};
#undef FRONT
#define FRONT(name)

#undef TOP
#define TOP(top, group, summary) {top, summary},
const struct named_text top_table[] = {
#include "cli/groups.list"
    {NULL, NULL},
};
#undef TOP
#define TOP(top, group, summary) {top, group},
static const struct named_text groups_of_tops[] = {
#include "cli/groups.list"
    {NULL, NULL},
};
#undef TOP
#define TOP(top, group, summary)

/* The place of a command: words before options, and at most one option that selects it. */
static const struct place {
    const char *words;   /* as people write them: "size", "size --as sparsity", "trace ls" */
    const char *kind;    /* value of --as; NULL if the place has no kind */
    const char *command; /* name in the lists of commands and analyzers */
    const char *help;    /* of the option that selects the place, unless it is --as */
} places[] = {
#undef FIRST
#undef KIND
#undef SUB
#undef FLAG
#define FIRST(top, kind, command) {top, kind, command, NULL},
#define KIND(top, kind, command) {top " --as " kind, kind, command, NULL},
#define SUB(words, command) {words, NULL, command, NULL},
#define FLAG(words, command, help) {words, NULL, command, help},
#include "cli/groups.list"
};
enum { N_PLACES = sizeof places / sizeof *places };

const char *place_words(const char *command)
{
    for (int i = 0; i < N_PLACES; i++)
        if (strcmp(places[i].command, command) == 0)
            return places[i].words;
    return command;
}

bool place_under(const char *words, const char *top)
{
    size_t n = strlen(top);
    return strncmp(words, top, n) == 0 && (words[n] == 0 || words[n] == ' ');
}

static const char *text_of(const struct named_text *t, const char *name)
{
    for (; t->name; t++)
        if (strcmp(t->name, name) == 0)
            return t->text;
    return NULL;
}

const char *top_summary(const char *top)
{
    return text_of(top_table, top);
}

const char *top_group(const char *top)
{
    return text_of(groups_of_tops, top);
}

/* ---- words of a command line */

/* Returns the number of bytes of the words before the first option. */
static size_t bare_length(const char *words)
{
    const char *option = strstr(words, " --");
    return option ? (size_t)(option - words) : strlen(words);
}

/* Returns the option that selects a place, such as "--logits"; NULL if no flag selects it. */
static const char *flag_of(const struct place *p)
{
    return p->help ? strstr(p->words, " --") + 1 : NULL;
}

/* Counts the first arguments that are the words of a place before its option; 0 if they differ. */
static int match_bare(const struct place *p, int argc, char **argv)
{
    const char *at = p->words, *end = at + bare_length(at);
    int n = 0;
    for (; at < end; n++) {
        size_t len = strcspn(at, " ");
        if (n >= argc || strlen(argv[n]) != len || strncmp(argv[n], at, len) != 0)
            return 0;
        at += len + (at[len] == ' ');
    }
    return n;
}

/* Returns the index of an option in the arguments from 1 on, also as "--as=VALUE"; 0 if it is not
 * there. Values of other options are skipped. */
static int find_option(int argc, char **argv, const struct place_context *x, const char *name)
{
    size_t n = strlen(name);
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], name) == 0
            || (strcmp(name, "--as") == 0 && strncmp(argv[i], "--as=", n + 1) == 0))
            return i;
        if (argv[i][0] == '-' && argv[i][1]
            && (x->takes_value(argv[0], argv[i]) || x->takes_value(x->caller, argv[i])))
            i++;
    }
    return 0;
}

static void drop(int *argc, char **argv, int at, int n)
{
    memmove(argv + at, argv + at + n, (size_t)(*argc - at - n) * sizeof *argv);
    *argc -= n;
}

static bool has_kinds(const char *top)
{
    for (int i = 0; i < N_PLACES; i++)
        if (places[i].kind && place_under(places[i].words, top))
            return true;
    return false;
}

/* Removes every --as from the arguments. *ret becomes the value of the last one, or stays NULL. */
static int take_kind(int *argc, char **argv, const struct place_context *x, const char **ret,
                     struct kvf_diag *d)
{
    for (int i = find_option(*argc, argv, x, "--as"); i; i = find_option(*argc, argv, x, "--as")) {
        bool joined = argv[i][4] == '=';
        if (!joined && i + 1 >= *argc)
            return kvf_fail(d, KVF_E_ARG, "--as needs a value, KIND; 'kvfate help %s' lists them",
                            argv[0]);
        *ret = joined ? argv[i] + 5 : argv[i + 1];
        drop(argc, argv, i, joined ? 1 : 2);
    }
    return KVF_OK;
}

static int wrong_kind(const char *top, const char *kind, struct kvf_diag *d)
{
    struct place_options o;
    struct buf all = {0};
    place_options(top, &o);
    for (int i = 0; o.kind[i]; i++)
        buf_printf(&all, "%s%s", i ? ", " : "", o.kind[i]);
    const char *near = opt_near(o.kind, kind);
    int err = kvf_fail(d, KVF_E_ARG, "--as '%s' is no kind of %s%s%s%s; the kinds are %s", kind,
                       top, near ? " (did you mean '" : "", near ? near : "", near ? "'?)" : "",
                       all.err ? "" : all.data);
    buf_finish(&all);
    return err;
}

static int find_kind(int *argc, char **argv, const struct place_context *x, const char **ret,
                     struct kvf_diag *d)
{
    const char *kind = NULL;
    int err = take_kind(argc, argv, x, &kind, d);
    for (int i = 0; !err && i < N_PLACES; i++) {
        const struct place *p = &places[i];
        if (p->kind && place_under(p->words, argv[0]) && (!kind || strcmp(p->kind, kind) == 0)) {
            *ret = p->command;
            argv[0] = (char *)p->words;
            return KVF_OK;
        }
    }
    return err ? err : wrong_kind(argv[0], kind, d);
}

int place_find(int *argc, char **argv, const struct place_context *x, const char **ret,
               struct kvf_diag *d)
{
    const struct place *best = NULL;
    int words = 0;
    *ret = argv[0];
    if (has_kinds(argv[0]))
        return find_kind(argc, argv, x, ret, d);
    for (int i = 0; i < N_PLACES; i++) {
        const struct place *p = &places[i];
        const char *flag = flag_of(p);
        int n = match_bare(p, *argc, argv);
        if (n && (!flag || find_option(*argc, argv, x, flag)) && n + (flag != NULL) > words) {
            words = n + (flag != NULL);
            best = p;
        }
    }
    if (!best)
        return KVF_OK;
    if (flag_of(best))
        drop(argc, argv, find_option(*argc, argv, x, flag_of(best)), 1);
    drop(argc, argv, 1, match_bare(best, *argc, argv) - 1);
    *ret = best->command;
    argv[0] = (char *)best->words;
    return KVF_OK;
}

void place_options(const char *words, struct place_options *ret)
{
    size_t n = bare_length(words);
    int kinds = 0, flags = 0, all = 0;
    *ret = (struct place_options){{NULL}, {{.type = OPT_END}}};
    for (int i = 0; i < N_PLACES; i++) {
        const struct place *p = &places[i];
        if (bare_length(p->words) != n || strncmp(p->words, words, n) != 0)
            continue;
        if (p->kind && kinds < PLACE_MAX_KINDS)
            ret->kind[kinds++] = p->kind;
        else if (flag_of(p) && flags < PLACE_MAX_FLAGS)
            ret->list[flags++] = (struct opt){OPT_FLAG, .name = flag_of(p) + 2, .help = p->help};
    }
    all = flags;
    if (kinds)
        ret->list[all++] = (struct opt){OPT_WORD,
                                        .name = "as",
                                        .arg = "KIND",
                                        .help = "kind of analysis",
                                        .absent = ret->kind[0],
                                        .words = ret->kind};
    ret->list[all] = (struct opt){.type = OPT_END};
}
