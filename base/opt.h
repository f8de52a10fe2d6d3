/* opt.h - typed options, declared once in a constant table.
 *
 * One table serves all who take or show options: the parser of the command line, key=value
 * settings, `-h`, `kvfate list all --json`, and through it the manual pages and the checks for
 * stale text.  A table has the offset of each value in the struct that is filled (`base` below), so
 * that it is static and can be shown where no struct exists:
 *
 *     static const struct opt options[] = {
 *         {OPT_STR, 'o', "output", offsetof(struct request, out), "OUT", "the table"},
 *         {OPT_INT, 'n', "count", offsetof(struct request, n), "N", "rows", "10", .max = 99},
 *         {OPT_GROUP, 0, "figure", offsetof(struct request, look), .group = figure_options},
 *         {.type = OPT_END},
 *     };
 *
 * A zeroed struct, opt_defaults and then opt_parse (or opt_set for each pair) fill it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <kvf/err.h>

#include "base/buf.h"

enum opt_type {
    OPT_END = 0, /* closes the table */
    OPT_FLAG,    /* bool             no value on the command line; yes or no in key=value */
    OPT_STR,     /* const char *     borrowed from argv, or from the table */
    OPT_INT,     /* int64_t          within [min, max] */
    OPT_REAL,    /* double           within [min, max], finite */
    OPT_WORD,    /* int              min plus the place in `words` of the word given */
    OPT_LIST,    /* struct opt_list  may be given several times; free it with opt_finish() */
    OPT_GROUP,   /* another table, with offsets relative to `offset` */
    OPT_BARRED,  /* an option of other commands; `help` is the reason why it is rejected here */
};

/* A number as the text of `standard`. */
#define OPT_TEXT_(x) #x
#define OPT_TEXT(x) OPT_TEXT_(x)

/* Texts of an option that may be given several times. */
struct opt_list {
    int n, cap;
    const char **item; /* [n] borrowed from argv; the array is owned */
};
/* Appends a text.  KVF_OK or KVF_E_NOMEM. */
int opt_list_add(struct opt_list *l, const char *text);
void opt_list_free(struct opt_list *l); /* accepts a zeroed list */

struct opt {
    enum opt_type type;
    char short_name;  /* 0: none */
    const char *name; /* without the dashes; NULL: short only.  OPT_GROUP: its name in documents */
    size_t offset;    /* of the value in the struct that is filled */
    const char *arg;  /* name of the value in the help: "FILE"; NULL for flags and groups.  For -o
                         with the endings of the output, "OUT.kvf" or "A.gguf|B.safetensors":  names
                         that end as another format does are rejected */
    const char *help; /* one line, without default, range and words: those are added */
    /* The default as typed; NULL: none, and the value stays zero.  It may be outside of [min, max],
     * and "nan" for OPT_REAL, to mean "not given": `absent` then describes the effect. */
    const char *standard;
    const char *absent; /* the effect without the option, for people: "all"; NULL: `standard` */
    double min, max; /* of OPT_INT and OPT_REAL; both 0: any.  OPT_WORD: the first word's number */
    const char *const *words; /* of OPT_WORD; ends with NULL */
    const struct opt *group;  /* of OPT_GROUP */
};

/* Sets all values that have a `standard`.  KVF_OK, or KVF_E_ARG with a sentence for a table with a
 * default of the wrong type. */
int opt_defaults(const struct opt *list, void *base, struct kvf_diag *d);

/* Parses argv[1..].  "--name value", "--name=value", "-n value" and "-nvalue" are accepted; "--"
 * ends the options; "-" is an operand.  Operands keep their order, are moved to the front of
 * argv + 1 and counted in *ret_operands.  -h or --help sets *ret_help and stops.  KVF_OK,
 * KVF_E_ARG with a sentence that names the option as it was typed, or KVF_E_NOMEM. */
int opt_parse(const struct opt *list, void *base, int argc, char **argv, int *ret_operands,
              bool *ret_help, struct kvf_diag *d);

/* One setting of key=value users: `name` without dashes.  Texts are borrowed.  KVF_OK, or
 * KVF_E_ARG with a sentence that names the setting. */
int opt_set(const struct opt *list, void *base, const char *name, const char *text,
            struct kvf_diag *d);

/* Frees the lists that opt_parse() and opt_set() have filled.  All other values are borrowed. */
void opt_finish(const struct opt *list, void *base);

/* A walk over a table and the groups in it, in order:
 *     struct opt_walk w = opt_walk(list);
 *     for (const struct opt *o = opt_next(&w); o; o = opt_next(&w))
 * Groups themselves are not returned. */
enum { OPT_DEPTH = 4 }; /* most tables inside each other */
struct opt_walk {
    size_t offset; /* of the value of the option that was returned last, from the outermost base */
    const char *group; /* name of the innermost group that it is in; NULL: none */
    int depth;
    struct {
        const struct opt *next;
        size_t offset;
        const char *group;
    } level[OPT_DEPTH];
};
struct opt_walk opt_walk(const struct opt *list);
const struct opt *opt_next(struct opt_walk *w); /* NULL at the end */

/* The option of a long name, groups included, and the offset of its value; NULL: none. */
const struct opt *opt_find(const struct opt *list, const char *name, size_t *ret_offset);

/* "  -m, --model FILE    text (range or words; default: X)" for each option. */
void opt_print(const struct opt *list, FILE *out);

/* Appends an array with an object for each option: "name", "type", "help", and where they exist
 * "short", "arg", "default", "absent", "min", "max", "words", "group". */
void opt_json(const struct opt *list, struct buf *b);

/* The word of a NULL-terminated list that `typed` is likely meant to be; NULL: none is near. */
const char *opt_near(const char *const *words, const char *typed);
/* Letters that must be put in, taken out or replaced to change one word into the second, ignoring
 * case; at least 99 for words of more than 63 bytes. */
int opt_distance(const char *a, const char *b);

/* Parses a complete string as a number: "12", "4k" (= 4096), "2M"; false on anything
 * else, on overflow and on trailing characters. */
bool opt_int(const char *s, int64_t *ret);
bool opt_real(const char *s, double *ret);

/* Parses a half-open range "A:B", "A:" or ":B" of numbers >= 0.  A missing bound keeps the value
 * that *a or *b had before.  option: for messages.  KVF_OK, or KVF_E_ARG with a sentence. */
int opt_range(const char *option, const char *text, int64_t *a, int64_t *b, struct kvf_diag *d);

/* Checks that [*a, *b) is in [0, n) and not empty, except for n = 0; *b < 0 means n.  unit, owner:
 * "tokens" and "the trace", for messages.  KVF_OK, or KVF_E_ARG with a sentence. */
int opt_range_fit(const char *option, const char *unit, const char *owner, int64_t n,
                  const int64_t *a, int64_t *b, struct kvf_diag *d);

/* Walks "key=value,key=value": *s moves on; the pieces are copied into key and
 * value (cap bytes each, NUL-terminated; a missing "=value" gives value "").
 * Returns 1 when a pair was read, 0 at the end, KVF_E_ARG on a malformed or too
 * long pair. */
int opt_pair(const char **s, char *key, char *value, int cap);
