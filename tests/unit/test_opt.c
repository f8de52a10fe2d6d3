/* Option parsing: what is taken, what is refused, and what the message names. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <string.h>

#include "base/opt.h"

static struct {
    bool flag;
    const char *text;
    int64_t whole;
    double real;
    struct opt_list many;
} v;

static const struct opt list[] = {
    {OPT_FLAG, 'q', "quiet", &v.flag, NULL, "say less", 0, 0},
    {OPT_STR, 't', "text", &v.text, "TEXT", "a text", 0, 0},
    {OPT_INT, 'n', "number", &v.whole, "N", "a number", -2, 10},
    {OPT_REAL, 0, "real", &v.real, "X", "a real", 0, 1},
    {OPT_LIST, 'l', "item", &v.many, "ITEM", "an item", 0, 0},
    {.type = OPT_END},
};

/* Parses words given in one string. */
static int parse(const char *line, int *operands, bool *help, struct kvf_diag *d)
{
    static char words[4096];
    static char *argv[256];
    int argc = 0;
    memset(&v, 0, sizeof v);
    strcpy(words, line);
    for (char *w = strtok(words, " "); w; w = strtok(NULL, " "))
        argv[argc++] = w;
    d->text[0] = 0;
    return opt_parse(list, argc, argv, operands, help, d);
}

Test(opt, accepted_forms)
{
    int n;
    bool help;
    struct kvf_diag d;
    static const char *const same[] = {"x -n 7", "x -n7", "x --number 7", "x --number=7"};
    for (int i = 0; i < 4; i++) {
        cr_assert(eq(int, parse(same[i], &n, &help, &d), KVF_OK), "%s: %s", same[i], d.text);
        cr_expect(eq(i64, v.whole, 7));
    }
    cr_assert(eq(int, parse("x --text= a --real 1 -n -2 b", &n, &help, &d), KVF_OK));
    cr_expect(eq(str, (char *)v.text, ""));
    cr_expect(eq(dbl, v.real, 1.0), "bounds are included");
    cr_expect(eq(i64, v.whole, -2));
    cr_expect(eq(int, n, 2));
    cr_assert(eq(int, parse("x -t -q", &n, &help, &d), KVF_OK));
    cr_expect(eq(str, (char *)v.text, "-q"), "a value may look like an option");
    cr_expect(not(v.flag));
    cr_assert(eq(int, parse("x -l a --item b -lc", &n, &help, &d), KVF_OK));
    cr_expect(eq(int, v.many.n, 3));
    cr_expect(eq(str, (char *)v.many.item[2], "c"));
    cr_assert(eq(int, parse("x -n 3 -n 4", &n, &help, &d), KVF_OK));
    cr_expect(eq(i64, v.whole, 4), "the last one wins");
    cr_assert(eq(int, parse("x --help --nonsense", &n, &help, &d), KVF_OK));
    cr_expect(help);
}

Test(opt, refused_with_the_name)
{
    static const struct {
        const char *line, *word;
    } bad[] = {
        {"x -n 11", "-n"},
        {"x -n -3", "-n"},
        {"x --number 1x", "--number"},
        {"x -n", "-n"},
        {"x --real 1.01", "--real"},
        {"x --real nan", "--real"},
        {"x --real 1e999", "--real"},
        {"x -qq", "-q"},
        {"x --quiet=1", "--quiet"},
        {"x -z", "-z"},
        {"x --numbers 1", "--numbers"},
        {"x --numbe 1", "--numbe"},
        {"x --=1", "--"},
        {"x ---n", "---n"},
        {"x -n 9223372036854775808", "-n"},
    };
    int n;
    bool help;
    struct kvf_diag d;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        cr_expect(eq(int, parse(bad[i].line, &n, &help, &d), KVF_E_ARG), "%s", bad[i].line);
        cr_expect(strstr(d.text, bad[i].word) != NULL, "%s: %s", bad[i].line, d.text);
    }
    char line[2000] = "x";
    for (int i = 0; i <= OPT_LIST_MAX; i++)
        strcat(line, " -l a");
    cr_expect(eq(int, parse(line, &n, &help, &d), KVF_E_ARG), "one item too many");
    memset(line, 'y', 1000);
    memcpy(line, "x --", 4);
    line[1000] = 0;
    cr_expect(eq(int, parse(line, &n, &help, &d), KVF_E_ARG), "a long name");
}

Test(opt, whole_numbers)
{
    static const struct {
        const char *s;
        int64_t n; /* -77: refused */
    } c[] = {{"0", 0},
             {"-5", -5},
             {"3k", 3072},
             {"3K", 3072},
             {"2M", 2097152},
             {"-1k", -1024},
             {"k", -77},
             {"", -77},
             {"1kk", -77},
             {"1 ", -77},
             {"0x10", -77},
             {"1e3", -77},
             {"9223372036854775807", INT64_MAX},
             {"-9223372036854775808", INT64_MIN},
             {"9223372036854775808", -77},
             {"9007199254740992k", -77},
             {"8796093022208M", -77}};
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        int64_t n = -77;
        cr_expect(eq(int, opt_int(c[i].s, &n), c[i].n != -77), "%s", c[i].s);
        cr_expect(eq(i64, n, c[i].n), "%s: untouched when refused", c[i].s);
    }
}

Test(opt, pairs_at_their_limits)
{
    static const struct {
        const char *s, *key, *value; /* key NULL: refused */
    } c[] = {{"abc=1234567", "abc", "1234567"},
             {"abcdefg=", "abcdefg", ""},
             {"a==", "a", "="},
             {"a=b=c", "a", "b=c"},
             {"abcdefgh=1", NULL, NULL},
             {"a=12345678", NULL, NULL},
             {"=1", NULL, NULL},
             {",a=1", NULL, NULL},
             {"a,", NULL, NULL}};
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        const char *s = c[i].s;
        char key[8] = "", value[8] = "";
        int got = opt_pair(&s, key, value, 8);
        cr_expect(eq(int, got, c[i].key ? 1 : KVF_E_ARG), "%s", c[i].s);
        if (c[i].key && got == 1) {
            cr_expect(eq(str, key, (char *)c[i].key));
            cr_expect(eq(str, value, (char *)c[i].value));
            cr_expect(eq(int, opt_pair(&s, key, value, 8), 0), "and then the end");
        }
    }
}
