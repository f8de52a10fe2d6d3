/* test_opt.c - option parsing: accepted and rejected command lines, and the messages. */
#include "base/opt.h"
#include "tests/suite.h"

static struct values {
    bool flag;
    const char *text;
    int64_t whole;
    double real;
    int word;
    struct inner {
        int64_t depth;
        double absent;
    } in;
    struct opt_list many;
} v;

static const char *const fruits[] = {"apple", "banana", "cherry", NULL};

static const struct opt inner[] = {
    {OPT_INT, 'd', "depth", offsetof(struct inner, depth), "N", "how deep", "7", .max = 9},
    {OPT_REAL, 0, "absent", offsetof(struct inner, absent), "X", "a real", "nan",
     .absent = "chosen", .max = 1},
    {.type = OPT_END},
};

static const struct opt list[] = {
    {OPT_FLAG, 'q', "quiet", offsetof(struct values, flag), NULL, "say less"},
    {OPT_STR, 't', "text", offsetof(struct values, text), "TEXT", "a text", .absent = "nothing"},
    {OPT_INT, 'n', "number", offsetof(struct values, whole), "N", "a number", .min = -2, .max = 10},
    {OPT_REAL, 0, "real", offsetof(struct values, real), "X", "a real", .max = 1},
    {OPT_GROUP, 0, "inside", offsetof(struct values, in), .group = inner},
    {OPT_WORD, 'w', "word", offsetof(struct values, word), "FRUIT", "a fruit", "banana",
     .words = fruits},
    {OPT_LIST, 'l', "item", offsetof(struct values, many), "ITEM", "an item"},
    {.type = OPT_END},
};

/* Parses words given in one string. */
static int parse(const char *line, int *operands, bool *help, struct kvf_diag *d)
{
    static char words[4096];
    static char *argv[256];
    int argc = 0;
    opt_finish(list, &v);
    memset(&v, 0, sizeof v);
    strcpy(words, line);
    for (char *w = strtok(words, " "); w; w = strtok(NULL, " "))
        argv[argc++] = w;
    d->text[0] = 0;
    return opt_parse(list, &v, argc, argv, operands, help, d);
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
    char line[2000];
    memset(line, 'y', 1000);
    memcpy(line, "x --", 4);
    line[1000] = 0;
    cr_expect(eq(int, parse(line, &n, &help, &d), KVF_E_ARG), "a long name");
}

Test(opt, lists_have_any_length)
{
    enum { N = 1000 };
    char words[N][8], *argv[N + 1] = {(char *)(uintptr_t) "x"};
    struct values many = {0};
    bool help;
    int n;
    struct kvf_diag d = {""};
    for (int i = 0; i < N; i++) {
        snprintf(words[i], sizeof words[i], "-l%d", i);
        argv[i + 1] = words[i];
    }
    cr_assert(eq(int, opt_parse(list, &many, N + 1, argv, &n, &help, &d), KVF_OK), "%s", d.text);
    cr_assert(eq(int, many.many.n, N));
    for (int i = 0; i < N; i++)
        cr_expect(eq(str, (char *)(uintptr_t)many.many.item[i], words[i] + 2));
    opt_finish(list, &many);
    cr_expect(eq(int, many.many.n, 0));
    cr_expect(zero(ptr, many.many.item));
}

Test(opt, whole_numbers)
{
    static const struct {
        const char *s;
        int64_t n; /* -77: rejected */
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

/* A range is taken as it is or rejected; it is never cut to the numbers that exist. */
Test(opt, ranges)
{
    static const struct {
        const char *text, *word; /* word: of the rejection; NULL: accepted */
        int64_t a, b;
    } c[] = {
        {"0:10", NULL, 0, 10},       {"3:", NULL, 3, 10},
        {":4", NULL, 0, 4},          {":", NULL, 0, 10},
        {"10:", "0 to 9", 0, 0},     {"5:5", "has no tokens", 0, 0},
        {"0:11", "0 to 9", 0, 0},    {"11:", "--x 11:: f.kvf has the tokens 0 to 9", 0, 0},
        {"12:20", "0 to 9", 0, 0},   {"5:3", "ends before it begins", 0, 0},
        {"5", "range A:B", 0, 0},    {"", "range A:B", 0, 0},
        {"a:3", "range A:B", 0, 0},  {"3:4x", "range A:B", 0, 0},
        {"-1:3", "range A:B", 0, 0}, {"1:2:3", "range A:B", 0, 0},
    };
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        struct kvf_diag d = {""};
        int64_t a = 0, b = -1;
        int err = opt_range("--x", c[i].text, &a, &b, &d);
        if (!err)
            err = opt_range_fit("--x", "tokens", "f.kvf", 10, &a, &b, &d);
        cr_assert(eq(int, err, c[i].word ? KVF_E_ARG : KVF_OK), "%s: %s", c[i].text, d.text);
        if (c[i].word)
            cr_expect(strstr(d.text, c[i].word) != NULL, "%s: %s", c[i].text, d.text);
        else
            cr_expect(a == c[i].a && b == c[i].b, "%s", c[i].text);
    }
}

Test(opt, pairs_at_their_limits)
{
    static const struct {
        const char *s, *key, *value; /* key NULL: rejected */
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

Test(opt, defaults_are_parsed_as_if_typed)
{
    struct kvf_diag d = {""};
    memset(&v, 0, sizeof v);
    cr_assert(eq(int, opt_defaults(list, &v, &d), KVF_OK), "%s", d.text);
    cr_expect(eq(int, v.word, 1));
    cr_expect(eq(i64, v.in.depth, 7), "a group's values lie behind its offset");
    cr_expect(isnan(v.in.absent));
    cr_expect(eq(i64, v.whole, 0), "no default: zero stays");
    static const struct opt outside[] = {
        {OPT_INT, 0, "n", offsetof(struct values, whole), "N", "", "-1", .absent = "all", .max = 9},
        {.type = OPT_END}};
    cr_expect(eq(int, opt_defaults(outside, &v, &d), KVF_OK));
    cr_expect(eq(i64, v.whole, -1), "a default outside of the range says: not given");
    static const struct opt wrong[] = {
        {OPT_INT, 0, "n", offsetof(struct values, whole), "N", "", "many"}, {.type = OPT_END}};
    cr_expect(eq(int, opt_defaults(wrong, &v, &d), KVF_E_ARG));
}

Test(opt, groups_are_parsed_and_walked_in_order)
{
    int n;
    bool help;
    struct kvf_diag d;
    cr_assert(eq(int, parse("x --depth 3 -w cherry --absent=0.5 -d4", &n, &help, &d), KVF_OK));
    cr_expect(eq(i64, v.in.depth, 4));
    cr_expect(eq(dbl, v.in.absent, 0.5));
    cr_expect(eq(int, v.word, 2));
    cr_expect(eq(int, parse("x --depth 10", &n, &help, &d), KVF_E_ARG));
    static const char *const names[] = {"quiet", "text",   "number", "real",
                                        "depth", "absent", "word",   "item"};
    struct opt_walk w = opt_walk(list);
    int i = 0;
    for (const struct opt *o = opt_next(&w); o; o = opt_next(&w), i++) {
        cr_assert(lt(int, i, 8));
        cr_expect(eq(str, (char *)o->name, (char *)names[i]));
        bool inside = i == 4 || i == 5;
        cr_expect(eq(int, w.group != NULL, inside));
        size_t offset = 0;
        cr_expect(eq(ptr, (void *)opt_find(list, o->name, &offset), (void *)o));
        cr_expect(eq(sz, offset, w.offset));
    }
    cr_expect(eq(int, i, 8));
    cr_expect(eq(ptr, (void *)opt_next(&w), NULL), "the end stays the end");
}

Test(opt, words_and_near_names)
{
    static const struct {
        const char *line, *says; /* NULL: no suggestion */
    } bad[] = {
        {"x -w bananna", "-w is apple, banana or cherry, not 'bananna' (did you mean 'banana'?)"},
        {"x -w BANANA", "not 'BANANA' (did you mean 'banana'?)"},
        {"x --word kiwi", NULL},
        {"x --nmber 1", "unknown option --nmber (did you mean --number?); -h lists"},
        {"x --dept=1", "unknown option --dept (did you mean --depth?)"},
        {"x --frobnicate", NULL}};
    int n;
    bool help;
    struct kvf_diag d;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        cr_expect(eq(int, parse(bad[i].line, &n, &help, &d), KVF_E_ARG));
        cr_expect(strstr(d.text, bad[i].says ? bad[i].says : "") != NULL, "%s", d.text);
        cr_expect(eq(int, strstr(d.text, "did you mean") != NULL, bad[i].says != NULL), "%s",
                  d.text);
    }
    cr_expect(eq(int, opt_distance("kitten", "sitting"), 3), "the example of the textbooks");
    cr_expect(eq(int, opt_distance("", "abc"), 3));
    cr_expect(eq(int, opt_distance("abc", ""), 3));
    cr_expect(eq(int, opt_distance("same", "same"), 0));
    cr_expect(eq(int, opt_distance("q4_K", "q4_k"), 0), "nearer than q4_1");
    cr_expect(eq(int, opt_distance("q4_K", "q4_1"), 1));
}

Test(opt, settings_by_name)
{
    struct kvf_diag d = {""};
    memset(&v, 0, sizeof v);
    cr_expect(eq(int, opt_set(list, &v, "word", "apple", &d), KVF_OK));
    cr_expect(eq(int, opt_set(list, &v, "depth", "2", &d), KVF_OK));
    cr_expect(eq(int, opt_set(list, &v, "quiet", "yes", &d), KVF_OK));
    cr_expect(v.flag);
    cr_expect(eq(i64, v.in.depth, 2));
    cr_expect(eq(int, opt_set(list, &v, "quiet", "no", &d), KVF_OK));
    cr_expect(not(v.flag));
    cr_expect(eq(int, opt_set(list, &v, "quiet", "1", &d), KVF_E_ARG));
    cr_expect(eq(int, opt_set(list, &v, "number", "11", &d), KVF_E_ARG));
    cr_expect(strstr(d.text, "number must be between -2 and 10") != NULL, "%s", d.text);
    cr_expect(eq(int, opt_set(list, &v, "rael", "1", &d), KVF_E_ARG));
    cr_expect(
        strstr(d.text, "unknown option 'rael' (did you mean 'real'?); options are quiet, text,")
            != NULL,
        "%s", d.text);
}

Test(opt, shown_with_range_words_and_default)
{
    static const char want[] =
        "  -q, --quiet                  say less\n"
        "  -t, --text TEXT              a text (default: nothing)\n"
        "  -n, --number N               a number (-2 to 10)\n"
        "      --real X                 a real (0 to 1)\n"
        "  -d, --depth N                how deep (0 to 9; default: 7)\n"
        "      --absent X               a real (0 to 1; default: chosen)\n"
        "  -w, --word FRUIT             a fruit (apple, banana or cherry; default: banana)\n"
        "  -l, --item ITEM              an item\n";
    char got[sizeof want + 100] = "";
    FILE *f = fmemopen(got, sizeof got, "w");
    cr_assert(f != NULL);
    opt_print(list, f);
    fclose(f);
    cr_expect(eq(str, got, (char *)want));
}

Test(opt, as_json)
{
    SCOPED(buf_finish) struct buf b = {0};
    opt_json(inner, &b);
    cr_expect(eq(str, b.data,
                 "[{\"name\":\"depth\",\"type\":\"whole\",\"help\":\"how deep\",\"short\":\"d\","
                 "\"arg\":\"N\",\"default\":\"7\",\"min\":0,\"max\":9},"
                 "{\"name\":\"absent\",\"type\":\"real\",\"help\":\"a real\",\"arg\":\"X\","
                 "\"default\":\"nan\",\"absent\":\"chosen\",\"min\":0,\"max\":1}]"));
    buf_clear(&b);
    opt_json(list, &b);
    cr_expect(strstr(b.data, "\"words\":[\"apple\",\"banana\",\"cherry\"]") != NULL, "%s", b.data);
    cr_expect(strstr(b.data, "\"group\":\"inside\"") != NULL, "%s", b.data);
}
