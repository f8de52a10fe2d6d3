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
    {"L0-5K*", 0, 5, 0, HEADSET_ALL, 'K', ""},
    {"L*K*", 0, HEADSET_ALL, 0, HEADSET_ALL, 'K', ""},
    {"15.2", 15, 15, 2, 2, '.', ""},
    {"0-3.*", 0, 3, 0, HEADSET_ALL, '.', ""},
    {"*.0", 0, HEADSET_ALL, 0, 0, '.', ""},
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

/* Returns the number of heads in a set, or -1 if it is rejected. *ret_sum is the sum of
 * 10 * layer + head + 100. */
static int marked(const char *set, char kind, const int *heads, int *ret_sum, struct kvf_diag *d)
{
    unsigned char take[3 * 4] = {0};
    const struct headset_shape shape = {"the model", 3, 4, heads, kind};
    int n = 0, err = headset_mark("--head", set, &shape, take, d);
    *ret_sum = 0;
    for (int i = 0; i < 12; i++) {
        n += take[i];
        *ret_sum += take[i] ? i / 4 * 10 + i % 4 + 100 : 0;
    }
    return err ? -1 : n;
}

Test(headset, marks)
{
    struct kvf_diag d;
    int sum;
    cr_expect(eq(int, marked("L1K2", 'K', NULL, &sum, &d), 1));
    cr_expect(eq(int, sum, 112));
    cr_expect(eq(int, marked("L0-1K3,2.0", 'K', NULL, &sum, &d), 3));
    cr_expect(eq(int, sum, 103 + 113 + 120));
    cr_expect(eq(int, marked("L*K*", 'K', NULL, &sum, &d), 12));
    cr_expect(eq(int, sum, 12 * 100 + 4 * 30 + 3 * 6));
    cr_expect(eq(int, marked("L1H2", 'H', NULL, &sum, &d), 1));
    cr_expect(eq(int, marked("L1H2,L0K0", 0, NULL, &sum, &d), 2));
}

/* A set that names a layer or a head that does not exist is rejected; it is never cut short. */
Test(headset, rejects)
{
    static const struct {
        const char *set, *word;
        char kind;
    } bad[] = {
        {"L0-40K1", "layer 40: the model has layers 0 to 2", 'K'},
        {"L3K0", "layer 3: the model has layers 0 to 2", 'K'},
        {"L7K0,L0K4", "layer 7", 'K'},
        {"L0K0,L3K0", "layer 3", 'K'},
        {"L1K4", "head 4: layer 1 of the model has KV heads 0 to 3", 'K'},
        {"L0-2H2-9", "head 9: layer 0 of the model has query heads 0 to 3", 'H'},
        {"*.4", "head 4", 0},
        {"0-3.*", "layer 3", 0},
        {"L1048576K0", "layer 1048576", 'K'},
        {"L1H2", "names query heads; name KV heads", 'K'},
        {"L1K2", "names KV heads; name query heads", 'H'},
        {"L1K2,x", "is not a set of KV heads such as L0-5K*", 'K'},
        {"", "names no KV head of the model", 'K'},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct kvf_diag d = {""};
        int sum;
        cr_expect(eq(int, marked(bad[i].set, bad[i].kind, NULL, &sum, &d), -1), "%s", bad[i].set);
        cr_expect(strstr(d.text, bad[i].word) != NULL, "%s: %s", bad[i].set, d.text);
    }
}

/* Layers may have different numbers of heads. A layer that is named must have the heads; a `*`
 * selects the layers that have them. */
Test(headset, layers_of_unequal_heads)
{
    const int heads[] = {4, 2, 3};
    struct kvf_diag d;
    int sum;
    cr_expect(eq(int, marked("L*K*", 'K', heads, &sum, &d), 9));
    cr_expect(eq(int, marked("L*K2", 'K', heads, &sum, &d), 2));
    cr_expect(eq(int, sum, 102 + 122));
    cr_expect(eq(int, marked("L1-2K*", 'K', heads, &sum, &d), 5));
    cr_expect(eq(int, marked("L0-1K2", 'K', heads, &sum, &d), -1));
    cr_expect(strstr(d.text, "layer 1 of the model has KV heads 0 to 1") != NULL, "%s", d.text);
    cr_expect(eq(int, marked("L*K4", 'K', heads, &sum, &d), -1));
}
