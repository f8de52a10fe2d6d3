/* test_headset.c - sets of heads as users write them. */
#include "base/headset.h"
#include "tests/suite.h"

enum { MOST = 1 << 20 };

struct reading {
    const char *text;
    int l0, l1, h0, h1;
    char kind;
    const char *rest; /* text after the set */
};

static const struct reading good[] = {
    {"L15K2", 15, 15, 2, 2, 'K', ""},
    {"L15H24", 15, 15, 24, 24, 'H', ""},
    {"L0-5K*", 0, 5, 0, MOST, 'K', ""},
    {"L*K*", 0, MOST, 0, MOST, 'K', ""},
    {"15.2", 15, 15, 2, 2, '.', ""},
    {"0-3.*", 0, 3, 0, MOST, '.', ""},
    {"*.0", 0, MOST, 0, 0, '.', ""},
    {"L1K0-1,L2K3", 1, 1, 0, 1, 'K', "L2K3"},
    {"L1K0,", 1, 1, 0, 0, 'K', ""},
    {"L007K1", 7, 7, 1, 1, 'K', ""},
    {"L1048576K0", MOST, MOST, 0, 0, 'K', ""},
    {"L3-3K1", 3, 3, 1, 1, 'K', ""},
};

Test(headset, items)
{
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        const struct reading *g = &good[i];
        const char *s = g->text;
        struct headset_item item;
        cr_assert(headset_next(&s, &item), "%s", g->text);
        cr_expect(eq(int, item.layer.lo, g->l0), "%s", g->text);
        cr_expect(eq(int, item.layer.hi, g->l1), "%s", g->text);
        cr_expect(eq(int, item.head.lo, g->h0), "%s", g->text);
        cr_expect(eq(int, item.head.hi, g->h1), "%s", g->text);
        cr_expect(eq(chr, item.kind, g->kind), "%s", g->text);
        cr_expect(zero(int, strcmp(s, g->rest)), "%s: '%s' is left", g->text, s);
    }
}

Test(headset, what_is_none)
{
    const char *const bad[] = {
        "",
        ",",
        "L",
        "K1",
        "L1",
        "L1K",
        "L1Q2",
        "L1.2",
        "1K2",
        "1",
        "1.",
        ".1",
        "x",
        " L1K2",
        "L1K2 ",
        "L1K2x",
        "L-1K2",
        "L2-1K0",
        "L1K2-",
        "L1K3-2",
        "L1-K0",
        "L**K0",
        "L*-3K0",
        "l1k2",
        "L1048577K0",
        "L99999999999999999999K0",
        "L0-99999999999999999999K0",
        "L1K2;L2K2",
        "+1.0",
        "L+1K0",
        "0x1.0",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const char *s = bad[i];
        struct headset_item item;
        cr_expect(not(headset_next(&s, &item)), "'%s' was taken", bad[i]);
    }
}

Test(headset, a_list_to_its_end)
{
    const char *s = "L0K1,3.2,L4-5H*";
    struct headset_item item;
    int n = 0;
    for (; *s; n++)
        cr_assert(headset_next(&s, &item));
    cr_expect(eq(int, n, 3));
    cr_expect(eq(int, item.layer.hi, 5));
}

/* Returns the number of heads in a set. *ret_sum is the sum of 10 * layer + head. */
static int marked(const char *set, char wrong, int *ret_sum)
{
    unsigned char take[3 * 4] = {0};
    int n = headset_mark(set, wrong, 3, 4, take);
    *ret_sum = 0;
    for (int i = 0; i < 12; i++)
        *ret_sum += take[i] ? i / 4 * 10 + i % 4 + 100 : 0;
    return n;
}

Test(headset, marks)
{
    int sum;
    cr_expect(eq(int, marked("L1K2", 'H', &sum), 1));
    cr_expect(eq(int, sum, 112));
    cr_expect(eq(int, marked("L0-1K3,2.0", 'H', &sum), 3));
    cr_expect(eq(int, sum, 103 + 113 + 120));
    cr_expect(eq(int, marked("L*K*", 'H', &sum), 12)); /* limited to the model's heads */
    cr_expect(eq(int, sum, 12 * 100 + 4 * 30 + 3 * 6));
    cr_expect(eq(int, marked("L7K0,L0K4", 'H', &sum), 0));
    cr_expect(eq(int, marked("", 'H', &sum), 0));
    cr_expect(eq(int, marked("L1H2", 'H', &sum), -1));
    cr_expect(eq(int, marked("L1H2", 'K', &sum), 1));
    cr_expect(eq(int, marked("L1K2", 'K', &sum), -1));
    cr_expect(eq(int, marked("L1H2,L0K0", 0, &sum), 2));
    cr_expect(eq(int, marked("L1K2,x", 'H', &sum), -1));
}
