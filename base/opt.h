/* opt.h - typed options, declared in constant tables.
 *
 * One table is used by the parser of the command line, by key=value settings, by `-h`, and by
 * `kvfate describe --json`, from which the manual pages and the lint checks are derived. A table
 * gives the place of a value as an offset into the struct that is filled (`base` below). Tables
 * are therefore static, and can be printed without such a struct:
 *
 *     static const struct opt options[] = {
 *         {OPT_STR, 'o', "output", offsetof(struct request, out), "OUT", "the table"},
 *         {OPT_INT, 'n', "count", offsetof(struct request, n), "N", "rows", "10", .max = 99},
 *         {OPT_GROUP, 0, "figure", offsetof(struct request, look), .group = figure_options},
 *         {.type = OPT_END},
 *     };
 *
 * Start with a zeroed struct, call opt_defaults() and then opt_parse(), or opt_set() for each
 * pair.
 */
#ifndef KVF_BASE_OPT_H
#define KVF_BASE_OPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <kvf/err.h>

#include "base/buf.h"

enum opt_type {
    OPT_END = 0, /* ends the table */
    OPT_FLAG,    /* bool             no value on the command line; yes or no in key=value */
    OPT_STR,     /* const char *     borrowed from argv, or from the table */
    OPT_INT,     /* int64_t          within [min, max] */
    OPT_REAL,    /* double           within [min, max], finite */
    OPT_WORD,    /* int              index into `words` */
    OPT_LIST,    /* struct opt_list  may be given several times */
    OPT_GROUP,   /* another table with offsets relative to `offset` */
};

/* Converts a number to text for `standard`. */
#define OPT_TEXT_(x) #x
#define OPT_TEXT(x) OPT_TEXT_(x)

enum { OPT_LIST_MAX = 64 };
/* The values of an OPT_LIST. */
struct opt_list {
    int n;
    const char *item[OPT_LIST_MAX]; /* borrowed from argv */
};

/* An option. */
struct opt {
    enum opt_type type;
    char short_name; /* 0 if there is none */
    /* without the dashes; NULL if there is only a short name. For OPT_GROUP: its name in
     * documents */
    const char *name;
    size_t offset; /* offset of the value in the struct */
    /* name of the value in the help, such as "FILE"; NULL for flags and groups. For -o it has the
     * extensions of the output, "OUT.kvf" or "A.gguf|B.safetensors"; names with the extension of
     * another format are rejected */
    const char *arg;
    /* one line, without default, range and words, which are added when it is printed */
    const char *help;
    /* The default as typed; NULL if there is none and the value stays zero. It may be outside
     * [min, max], and "nan" for OPT_REAL, to mean "not given". `absent` then describes the
     * default. */
    const char *standard;
    /* effect without the option, for people, such as "all"; NULL to show `standard` */
    const char *absent;
    double min, max;          /* for OPT_INT and OPT_REAL; both 0 for any value */
    const char *const *words; /* for OPT_WORD; ends with NULL */
    const struct opt *group;  /* for OPT_GROUP */
};

/* Sets all values that have a `standard`. Returns KVF_OK, or KVF_E_ARG with a sentence if a
 * default has the wrong type. */
int opt_defaults(const struct opt *list, void *base, struct kvf_diag *d);

/* Parses argv[1..]. Accepts "--name value", "--name=value", "-n value" and "-nvalue". "--" ends
 * the options, and "-" is an operand. Operands keep their order. They are moved to the front of
 * argv + 1 and counted in *ret_operands. -h or --help sets *ret_help and stops. Returns KVF_OK, or
 * KVF_E_ARG with a sentence that names the option as typed. */
int opt_parse(const struct opt *list, void *base, int argc, char **argv, int *ret_operands,
              bool *ret_help, struct kvf_diag *d);

/* Sets one value for key=value settings: `name` without dashes. Texts are borrowed. Returns
 * KVF_OK, or KVF_E_ARG with a sentence that names the setting. */
int opt_set(const struct opt *list, void *base, const char *name, const char *text,
            struct kvf_diag *d);

/* Iterates over the options of a table and its groups, in order:
 *     struct opt_walk w = opt_walk(list);
 *     for (const struct opt *o = opt_next(&w); o; o = opt_next(&w))
 * The groups themselves are not returned.
 */
enum { OPT_DEPTH = 4 }; /* maximum depth of nested tables */
struct opt_walk {
    size_t offset; /* offset of the last option's value from the outermost base */
    /* name of the innermost group of the last option; NULL if it is in no group */
    const char *group;
    int depth;
    struct {
        const struct opt *next;
        size_t offset;
        const char *group;
    } level[OPT_DEPTH];
};
struct opt_walk opt_walk(const struct opt *list);
const struct opt *opt_next(struct opt_walk *w); /* NULL at the end */

/* Finds an option by its long name, also in groups, and sets *ret_offset to the offset of its
 * value; NULL if there is none. */
const struct opt *opt_find(const struct opt *list, const char *name, size_t *ret_offset);

/* Prints "  -m, --model FILE    text (range or words; default: X)" for each option. */
void opt_print(const struct opt *list, FILE *out);

/* Appends an array with an object for each option: "name", "type", "help", and where they exist
 * "short", "arg", "default", "absent", "min", "max", "words", "group". */
void opt_json(const struct opt *list, struct buf *b);

/* Returns the word of a NULL-terminated list that is most similar to `typed`; NULL if no word is
 * similar. */
const char *opt_near(const char *const *words, const char *typed);
/* Returns the number of letters that must be inserted, deleted or replaced to change one word to
 * the other, ignoring case; at least 99 for words over 63 bytes. */
int opt_distance(const char *a, const char *b);

/* Parse a complete string as a number: "12", "4k" (= 4096), "2M". Return false for other texts, on
 * overflow and on trailing characters. */
bool opt_int(const char *s, int64_t *ret);
bool opt_real(const char *s, double *ret);

/* Iterates over "key=value,key=value": advances *s, and copies the next pair to key and value (cap
 * bytes each, NUL-terminated; a missing "=value" gives value ""). Returns 1 for a pair, 0 at the
 * end, or KVF_E_ARG for a malformed or too long pair. */
int opt_pair(const char **s, char *key, char *value, int cap);

#endif
