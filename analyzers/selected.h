/* selected.h - the common part of the analyses of selected sets: criteria, the heads that a row
 * speaks of, and their columns. */
#pragma once

#include <stdbool.h>

#include <kvf/schema.h>

#include "analyzers/classes.h"
#include "analyzers/frame.h"

struct criterion {
    const char *name;
    int top; /* K of a top-K set; 0: a set of mass */
};
/* The criteria of every run with the probe survival; contrib64 of the probe contrib; and `held`, by
 * which a query selects all entries that it sees: the lives of cached entries, only from
 * evict_step. */
enum { CRITERION_HELD = KVF_N_CRITERIA + 1, N_CRITERION_TABLE };
#define CRITERION_LIST "top64 ... top512, mass.90 ... mass.99, held, a list, or all"
extern const struct criterion criterion_table[N_CRITERION_TABLE];

/* Place in criterion_table of the name s[0..n), or -1. */
int criterion_find(const char *s, size_t n);

/* Less than, equal to or more than 0: the order of rows, that of criterion_table, with gaps (B-A)
 * after all, by B and then A.  Unknown names are equal, after all known ones. */
int criterion_compare(const char *a, const char *b);

/* The criteria of a comma list, or of "all" (without contrib64), in the order of the table. */
int criteria_choose(const char *list, int ret[N_CRITERION_TABLE], int *ret_n, struct kvf_diag *d);

/* The column FAMILY.CRITERION, of query heads and tokens, as columns_find finds it; for `held`
 * evict_step, which ages_read converts to ages. */
int criterion_column(const struct kvf_trace *t, const char *family, int criterion, struct lacks *l,
                     int *ret_column, struct kvf_diag *d);

/* The head that a row is of: a query head; a KV head, of which a token is selected when any of
 * its query heads selects it; or a KV head with all (query head, token) pairs of its group. */
enum selected_space { SPACE_QUERY, SPACE_KV_UNION, SPACE_KV_MEAN, N_SELECTED_SPACES };
extern const char *const space_words[]; /* of an option, in the order of the enum */
const char *space_name(enum selected_space s);

/* The query heads of such a head: `members` in which tokens count, each the union of `heads`
 * query heads; member m has first + m * heads and following ones. */
struct unit {
    int layer, kv, first, members, heads;
};
int unit_of(const struct kvf_trace *t, enum selected_space space, const struct head *h,
            struct unit *ret, struct kvf_diag *d);

/* For a trace that lacks columns of criteria: the remedy if it has evictions, else NULL. */
const char *criterion_else(const struct kvf_trace *t);

/* n values of a query head from token a on, an age of "never" as -1, others beyond int32 as
 * INT32_MAX.  raw: 8 n bytes of scratch. */
int ages_read(struct kvf_trace *t, int column, const struct unit *u, int query, int64_t a,
              int64_t n, void *raw, int32_t *out, struct kvf_diag *d);

/* The n values of a member as the trace has them, borrowed until the next call that reads from t:
 * of a column of 16 bits and members of one query head; else NULL.  All ones are "never" in
 * columns of ages. */
int member_view(struct kvf_trace *t, int column, const struct unit *u, int m, int64_t a, int64_t n,
                const uint16_t **ret, struct kvf_diag *d);

/* Room for the ages of tokens [a, b) in one member, and for reading them: memory of the frame. */
struct ages_of {
    int64_t a, b;
    int32_t *age, *other; /* [T] */
    void *raw;
};
struct ages_of ages_room(struct frame *f);
/* x->age: the largest age of a token in the query heads of member m. */
int member_read(struct kvf_trace *t, int column, const struct unit *u, int m,
                const struct ages_of *x, struct kvf_diag *d);

/* "1,2,5": integers from 0 to INT32_MAX, at most `most`; rising ones only, if asked. */
int numbers_parse(const char *option, const char *list, bool rising, int most, int64_t *ret,
                  int *ret_n, struct kvf_diag *d);
/* Tokens in groups: 0 is all of them, the rest are the classes that occur in the trace, if asked
 * for. */
struct token_group_options {
    int by; /* 0: only all tokens; 1: classes too */
    const char *classes;
};
extern const struct opt token_group_options[];
struct token_groups {
    int n;
    const char **name;       /* [n] */
    uint8_t *of;             /* [T] group of a token; NULL: there is only one */
    struct classes *classes; /* owned; NULL: none */
};
int token_groups_make(struct kvf_trace *t, const struct token_group_options *o,
                      struct token_groups *ret, struct kvf_diag *d);
void token_groups_note(const struct token_groups *g, struct table *out);
void token_groups_free(struct token_groups *g);

/* The common options of the analyses of selected sets. */
struct selection_options {
    const char *criterion;
    int space; /* enum selected_space */
    struct token_group_options groups;
};
struct selection {
    enum selected_space space;
    struct token_groups groups;
    int criterion[N_CRITERION_TABLE], n_criteria;
    char note[320]; /* on criteria that select every cached entry; "": no such criteria */
};
/* For choose of a frame; sets its space.  If the list is "all", criteria of K entries are left out
 * if the run's budget is K or less, unless no other remains.  token_groups_free(&ret->groups) at
 * the end. */
int selection_choose(struct frame *f, const struct selection_options *o, struct selection *ret,
                     struct kvf_diag *d);

/* If the list is "all", keeps the criteria with a column last_selected in the trace, and notes the
 * missing ones in the table's metadata.  A trace without such columns keeps only `held` if it has
 * evict_step; otherwise it keeps all, which are then rejected. */
void selection_recorded(struct frame *f, const char *list, struct selection *s);

/* Notes criteria of K entries where no query sees more than K: their curves show how long entries
 * are cached. */
void selection_warn(const struct selection *s, struct table *out);

/* Metadata of their tables; wait: steps that a token must have after its birth. */
void selection_note(const struct frame *f, const struct selection *s, const char *wait_name,
                    int64_t wait, struct table *out);
