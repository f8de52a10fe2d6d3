/* groups.h - the places of commands on the command line, which cli/groups.list declares. */
#ifndef KVF_CLI_GROUPS_H
#define KVF_CLI_GROUPS_H

#include "base/opt.h"

/* A name and a text. A table of them ends with the name NULL. */
struct named_text {
    const char *name, *text;
};
extern const struct named_text group_table[];   /* groups of the overview and their titles */
extern const struct named_text synonym_table[]; /* words that people try, and our words for them */
extern const struct named_text top_table[];     /* top-level commands that consist of others */
extern const char *const front_table[];         /* commands of the first page; ends with NULL */

/* Returns the words by which a command is called, such as "survival --as hazard", for its name in
 * the lists of commands and analyzers. They are that name if groups.list does not move it. */
const char *place_words(const char *command);
/* Returns true if the words begin with the top-level command `top`. */
bool place_under(const char *words, const char *top);
/* Returns the summary, or the group, of a top-level command in top_table. Returns NULL for other
 * names. */
const char *top_summary(const char *top);
const char *top_group(const char *top);

/* The options of a command line, as place_find() needs to know them. */
struct place_context {
    const char *caller; /* first word of the command line */
    /* Returns true if `word` is an option with its value in the next word, of a command under the
     * top-level command `top`. */
    bool (*takes_value)(const char *top, const char *word);
};

/* Finds the command that a command line calls. argv[0] is the first word behind "kvfate". If a
 * place fits, its words are removed from argv, argv[0] becomes the words of the place, *argc is
 * reduced, and *ret is the name of the command in the lists. Otherwise *ret is argv[0]. Everything
 * behind "--", and each value of an option, is skipped. Returns KVF_OK, or KVF_E_ARG with a
 * sentence if --as is wrong. */
int place_find(int *argc, char **argv, const struct place_context *x, const char **ret,
               struct kvf_diag *d);

enum { PLACE_MAX_KINDS = 16, PLACE_MAX_FLAGS = 4 };
/* The options that choose between the commands at one place, for help and documents: --as with its
 * kinds, and flags such as --logits. place_find() removes them before options are parsed. */
struct place_options {
    const char *kind[PLACE_MAX_KINDS + 1];
    struct opt list[PLACE_MAX_FLAGS + 2];
};
void place_options(const char *words, struct place_options *ret);

#endif
