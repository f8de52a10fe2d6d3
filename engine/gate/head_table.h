/* head_table.h - reads tables that give each head a cache budget, or a score from which a budget
 * follows.
 *
 * A file is JSON or safetensors.  docs/reference/methods.md ("Budgets per head") states the forms
 * and the rule of each; engine/method/head_budgets.h computes the budgets. */
#ifndef KVF_ENGINE_HEAD_TABLE_H
#define KVF_ENGINE_HEAD_TABLE_H

#include <stdint.h>

#include <kvf/err.h>

#include "base/checksum.h"

enum head_table_form {
    HEAD_TABLE_ENTRIES,   /* entries of each head */
    HEAD_TABLE_FRACTIONS, /* fractions of the run's budget */
    HEAD_TABLE_SCORES,    /* HeadKV: a score per query head */
    HEAD_TABLE_KEPT,      /* RazorAttention: KV heads that keep everything */
    HEAD_TABLE_PRUNED,    /* LU-KV: pruned fractions of KV heads at 99 compression ratios */
};
enum {
    HEAD_TABLE_RATIOS = 99,      /* .01, .02, .. .99 of HEAD_TABLE_PRUNED */
    HEAD_TABLE_HEADS = 1 << 20,  /* maximum heads of a table */
    HEAD_TABLE_BUDGET = 1 << 24, /* maximum entries of a head */
};

struct head_table {
    char *path;
    enum head_table_form form;
    int n_layers, n_heads; /* HEAD_TABLE_KEPT: the largest that it names, and 1 */
    double *value;         /* [L][H]; of HEAD_TABLE_PRUNED [99][L][H].  SCORES: >= 0, some > 0, the
                              mean of each head's samples.  KEPT: 1 or 0.  PRUNED: in [0, 1] */
    char hash[CHECKSUM_DIGITS + 1]; /* of form, shape and values */
};

/* Reads a table.  KVF_OK, KVF_E_NOMEM, or with a sentence KVF_E_IO, KVF_E_FORMAT or KVF_E_LIMIT. */
int head_table_open(const char *path, struct head_table **ret, struct kvf_diag *d);
void head_table_close(struct head_table *t); /* accepts NULL */

/* Returns the name of a form: "entries", "fraction", "headkv", "razorattention" or "lu-kv". */
const char *head_table_form_name(enum head_table_form form);

#endif
