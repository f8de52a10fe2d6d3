/* opt.h - command-line options from one declared list per command.
 *
 * The list drives parsing, `-h` and the check that every option is in the man
 * page.  "--name value", "--name=value", "-n value" and "-nvalue" are accepted;
 * "--" ends the options; "-" is an operand.  Operands keep their order. */
#ifndef KVF_BASE_OPT_H
#define KVF_BASE_OPT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <kvf/err.h>

enum opt_type {
    OPT_END = 0, /* closes the list */
    OPT_FLAG,    /* bool *            no value */
    OPT_STR,     /* const char **     borrowed from argv */
    OPT_INT,     /* int64_t *         within [min, max] */
    OPT_REAL,    /* double *          within [min, max], finite */
    OPT_LIST,    /* struct opt_list * may be given several times */
};

enum { OPT_LIST_MAX = 64 };
struct opt_list {
    int n;
    const char *item[OPT_LIST_MAX]; /* borrowed from argv */
};

struct opt {
    enum opt_type type;
    char short_name;  /* 0: none */
    const char *name; /* without the dashes; NULL: short only */
    void *value;      /* where it goes; the default is what is there before */
    const char *arg;  /* name of the value in the help: "FILE" */
    const char *help; /* one line */
    double min, max;  /* for OPT_INT and OPT_REAL; both 0 = any */
};

/* Parses argv[1..].  Operands are moved to the front of argv + 1 and counted in
 * *ret_operands.  -h or --help sets *ret_help and stops.  KVF_OK or KVF_E_ARG
 * with a sentence that names the option. */
int opt_parse(const struct opt *list, int argc, char **argv, int *ret_operands, bool *ret_help,
              struct kvf_diag *d);

/* "  -m, --model FILE    text" for each option. */
void opt_print(const struct opt *list, FILE *out);

/* Whole-string number parsing: "12", "4k" (= 4096), "2M"; false on anything
 * else, on overflow and on trailing characters. */
bool opt_int(const char *s, int64_t *ret);
bool opt_real(const char *s, double *ret);

/* Walks "key=value,key=value": *s moves on; the pieces are copied into key and
 * value (cap bytes each, NUL-terminated; a missing "=value" gives value "").
 * Returns 1 when a pair was read, 0 at the end, KVF_E_ARG on a malformed or too
 * long pair. */
int opt_pair(const char **s, char *key, char *value, int cap);

#endif
