/* test_analyzers.c - checks rules that apply to every analyzer of the list. */
#include "analyzers/analyzer.h"
#include "tests/suite.h"

static size_t size_of(enum opt_type type)
{
    switch (type) {
    case OPT_FLAG:
        return sizeof(bool);
    case OPT_STR:
        return sizeof(char *);
    case OPT_INT:
        return sizeof(int64_t);
    case OPT_REAL:
        return sizeof(double);
    case OPT_WORD:
        return sizeof(int);
    case OPT_LIST:
        return sizeof(struct opt_list);
    default:
        return ANALYZER_OPTIONS_SIZE + 1;
    }
}

Test(analyzers, options_fit_the_room_and_have_valid_defaults)
{
    for (const struct analyzer *const *a = analyzer_table; *a; a++) {
        struct analyzer_options room = {{0}};
        struct kvf_diag d = {""};
        struct opt_walk w = opt_walk((*a)->options);
        for (const struct opt *o = opt_next(&w); o; o = opt_next(&w))
            cr_expect(le(sz, w.offset + size_of(o->type), (size_t)ANALYZER_OPTIONS_SIZE), "%s --%s",
                      (*a)->name, o->name);
        if ((*a)->options)
            cr_expect(eq(int, opt_defaults((*a)->options, &room, &d), KVF_OK), "%s: %s", (*a)->name,
                      d.text);
    }
}

Test(analyzers, each_says_what_it_is)
{
    for (const struct analyzer *const *a = analyzer_table; *a; a++) {
        const char *example = (*a)->example;
        cr_expect(eq(ptr, (void *)analyzer_find((*a)->name), (void *)*a), "%s", (*a)->name);
        cr_expect(eq(int, strncmp(example, "kvfate ", 7), 0), "%s", example);
        cr_expect(ne(int, (*a)->summary[strlen((*a)->summary) - 1], '.'), "%s", (*a)->summary);
        cr_expect(eq(int, ((*a)->heads != NULL) + ((*a)->run != NULL), 1), "%s: heads or run",
                  (*a)->name);
        cr_expect(ne(ptr, (*a)->describe, NULL), "%s", (*a)->name);
        cr_expect(ge(int, (*a)->max_traces, (*a)->min_traces > 1 ? (*a)->min_traces : 0), "%s",
                  (*a)->name);
        if ((*a)->heads)
            cr_expect(le(int, (*a)->max_traces, 1), "%s: the frame takes one trace", (*a)->name);
    }
}
