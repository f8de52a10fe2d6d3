/* life.h - the frame of the life analyses: survival, hazard, block-exit, decay, persistence and
 * intermittency.
 *
 * A life analysis counts tokens in each head, for each criterion and class of tokens, and writes a
 * fixed number of rows for each class.  It also adds the counts of all heads and writes rows of the
 * sum.  This module has their options, the choice of criteria, heads, tokens and columns, the
 * reading of columns, the sums over threads, the layout of rows, and the metadata.
 *
 * The analysis begins its struct of options with a struct life_options, its state with a struct
 * life, and its struct of rows with a struct life_row.  Its head_analysis uses LIFE_ANALYSIS.
 *
 * An event ends a life (lives.h): `gone` is the last selection.  `first-exit` is the age before the
 * first query that did not select the token.  Then the grace W is 0, and a token that every query
 * selected is censored. */
#pragma once

#include "analyzers/lives.h"

/* ---- options */

enum life_event { LIFE_GONE, LIFE_FIRST_EXIT };
extern const char *const life_event_words[]; /* in the order of the enum */
extern const char *const life_mean_words[];  /* of --space, for mean_space below */

struct life_options {
    struct selection_options selection;
    int mean_space;                     /* 1: rows are of KV heads, SPACE_KV_MEAN */
    int event;                          /* enum life_event */
    int64_t grace, at_least, follow_up; /* steps, tokens, steps */
    int64_t length;                     /* no option: 0, or the length that of_length is told */
};

/* Lines of an analysis' table of options.  `text` is the help. */
#define LIFE_OPTION_CRITERION(text, by_default)                                                    \
    {                                                                                              \
        OPT_STR, 0, "criterion", offsetof(struct life_options, selection.criterion), "LIST", text, \
            by_default                                                                             \
    }
#define LIFE_OPTION_SPACE                                                                          \
    {                                                                                              \
        OPT_WORD, 0, "space", offsetof(struct life_options, selection.space), "S",                 \
            "heads; kv-union: any of the group", "query", .words = space_words                     \
    }
#define LIFE_OPTION_MEAN_SPACE                                                                     \
    {                                                                                              \
        OPT_WORD, 0, "space", offsetof(struct life_options, mean_space), "S",                      \
            "heads; kv-mean: all of the group together", "query", .words = life_mean_words         \
    }
#define LIFE_OPTION_GRACE                                                                          \
    {                                                                                              \
        OPT_GROUP, .offset = offsetof(struct life_options, grace), .group = lives_grace_option     \
    }
#define LIFE_OPTION_AT_LEAST(text)                                                                 \
    {                                                                                              \
        OPT_INT, 0, "at-least", offsetof(struct life_options, at_least), "N", text, "20",          \
            .min = 1, .max = INT32_MAX                                                             \
    }
#define LIFE_OPTION_FOLLOW_UP                                                                      \
    {                                                                                              \
        OPT_INT, 0, "follow-up", offsetof(struct life_options, follow_up), "F",                    \
            "only tokens with F later queries or more", "0", .max = INT32_MAX                      \
    }
#define LIFE_OPTION_GROUPS                                                                         \
    {                                                                                              \
        OPT_GROUP, .offset = offsetof(struct life_options, selection.groups),                      \
                   .group = token_group_options                                                    \
    }
/* The common options of block-exit and decay, for OPT_GROUP at offset 0. */
extern const struct opt life_event_options[];
/* The columns that these options can ask for. */
#define LIFE_EVENT_COLUMNS                                                                         \
    {"last_selected.*", KVF_SPACE_QUERY, KVF_AXIS_TOKEN, COLUMN_ASKED, "of --criterion"},          \
        {"first_unselected.*", KVF_SPACE_QUERY, KVF_AXIS_TOKEN, COLUMN_ASKED,                      \
         "--event first-exit, of --criterion"},                                                    \
    {                                                                                              \
        "evict_step", KVF_SPACE_KV, KVF_AXIS_TOKEN, COLUMN_ASKED, "--criterion held"               \
    }

/* Notes the length that the default grace depends on (analyzer.h, of_length). */
void life_of_length(void *options, int64_t T);

/* ---- counts */

struct life_work;

/* A kind of counts.  item: of the frame; counts: a struct of `size` bytes. */
struct life_counts {
    size_t size;
    /* Makes zeroed counts in memory of the frame. */
    void (*create)(struct frame *f, int item, void *counts);
    void (*clear)(const struct frame *f, int item, void *counts);
    void (*add)(const struct frame *f, int item, const void *counts, void *to);
    /* Adds the tokens [f->a, f->b) of one member (selected.h) with these values, an age of "never"
     * as -1.  It may change the values. */
    void (*count)(const struct frame *f, int item, int32_t *value, void *counts);
    /* Adds values of 16 bits, of which all ones are "never" where `age`.  There is one group. */
    void (*count_narrow)(const struct frame *f, int item, const uint16_t *value, bool age,
                         void *counts);
    /* Returns true if count_narrow accepts the column. */
    bool (*takes_narrow)(const struct frame *f, const struct kvf_column *column);
    /* Adds a head, instead of count and count_narrow.  NULL: those are used. */
    int (*count_head)(const struct frame *f, const struct frame_head *x, void *room, void *counts,
                      struct kvf_diag *d);
};
/* Counts of struct lives. */
extern const struct life_counts life_lives;

/* ---- state */

/* Fills the rows of head h (f->heads.n: all heads together) from its counts.  room: see below. */
typedef void (*life_rows_fn)(const struct frame *f, int item, int h, const void *counts,
                             void *room);

enum { LIFE_MOST_PARTS = 16, LIFE_MOST_COLUMNS = 4 * N_CRITERION_TABLE };
struct life {
    struct selection of;
    enum life_event event;
    int64_t at_least, follow_up;
    int column[LIFE_MOST_COLUMNS]; /* of items, all parts of one in one place */
    int n_parts;                   /* items for each criterion that differ in their edges */
    struct lives_plan plan[LIFE_MOST_PARTS];
    bool tells_event;   /* the metadata have the event */
    int rows_per_class; /* of each head and item */
    const struct life_counts *counts;
    life_rows_fn rows_of;
    size_t room; /* bytes of scratch that rows_of has in each thread, zeroed */
};

/* For choose of a frame: applies --follow-up to f->b and fills `of`, event, at_least, follow_up and
 * one part without edges. */
int life_choose(struct frame *f, const struct life_options *o, struct life *x, struct kvf_diag *d);
/* Sets the grace for the chosen criteria.  It is 0 for `held`, because an evicted entry does not
 * return.  Rejects `held` together with other criteria if --grace is not given. */
int life_set_grace(struct life *x, const struct life_options *o, int64_t T, struct kvf_diag *d);
/* Finds the columns FAMILY.CRITERION, n_families for each criterion.  else_: columns_refuse. */
int life_columns(const struct frame *f, struct life *x, const char *const *family, int n_families,
                 const char *else_, struct kvf_diag *d);
/* The columns last_selected of the criteria, or of the event. */
int life_event_columns(const struct frame *f, struct life *x, struct kvf_diag *d);
/* For prepare: the number of items and rows, and the places of edges. */
int life_prepare(struct frame *f, int items, int rows_per_class);

static inline const struct lives_plan *life_plan(const struct frame *f, int item)
{
    const struct life *x = f->state;
    return &x->plan[item % x->n_parts];
}

/* ---- rows */

struct life_row {
    struct row_head of;
    const char *criterion, *class;
};
#define LIFE_ROW_MEMBERS                                                                           \
    ROW_HEAD_MEMBERS(life_row, of),                                                                \
        {"criterion", "", TABLE_STR, offsetof(struct life_row, criterion)},                        \
    {                                                                                              \
        "class", "", TABLE_STR, offsetof(struct life_row, class)                                   \
    }
#define LIFE_KEYS "head", "layer", "index", "criterion", "class"

/* The place in f->row of the first row of head h. */
void *life_rows_at(const struct frame *f, int item, int h);
/* The first members of a row of class g, with the name of the item's criterion. */
struct life_row life_row_of(const struct frame *f, int item, int h, int g);

/* Returns true if row r of a table is of all heads and all classes. */
bool life_row_is_all(const struct table *t, int64_t r);

/* ---- functions of a head_analysis */

struct life_work {               /* its scratch */
    void *mine[LIFE_MOST_PARTS]; /* counts of the head at hand, for each part */
    unsigned char *all;          /* [items] counts of all heads that this thread had */
    struct ages_of ages;         /* unless the counts have count_head */
    void *room;
};
/* Returns the room of this thread; NULL when memory is out. */
void *life_room(struct frame *f, void *scratch);
void life_thread(struct frame *f, void *scratch);
int life_head(const struct frame *f, const struct frame_head *x, struct kvf_diag *d);
int life_finish(struct frame *f, struct kvf_diag *d);
int life_put_metadata(struct frame *f, struct table *out, struct kvf_diag *d);
void life_close(struct frame *f);
#define LIFE_ANALYSIS(state, put_metadata)                                                         \
    FRAME_TYPES(state, struct life_work), FRAME_RECORDS(struct row),                               \
        .choose = choose, .prepare = prepare, .thread = thread, .head = life_head,                 \
        .finish = life_finish, .rows = put_metadata, .close = life_close
