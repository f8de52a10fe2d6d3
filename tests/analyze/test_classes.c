/* test_classes.c - checks token classes: hand-made texts, texts cut at every place, ill-formed
 * bytes, hostile rules. */
#include <time.h>

#include "analyzers/classes.h"
#include "tests/suite.h"

enum { MOST = 4096 };

struct text {
    char bytes[MOST];
    size_t end[MOST], n;
    uint8_t class[MOST];
};

static void add(struct text *t, const char *s, size_t len)
{
    size_t at = t->n ? t->end[t->n - 1] : 0;
    memcpy(t->bytes + at, s, len);
    t->end[t->n++] = at + len;
}

static struct classes *open_json(const char *json, int want, struct kvf_diag *d)
{
    char path[] = "classes.XXXXXX";
    struct classes *c = NULL;
    int fd = mkstemp(path);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "wb");
    cr_assert(f && fputs(json, f) >= 0 && fclose(f) == 0);
    int err = classes_open(path, &c, d);
    remove(path);
    cr_assert(err == want, "%s: %d %s", json, err, d->text);
    return c;
}

/* Returns the classes of the tokens, which '|' separates, as names separated by spaces. */
static const char *named(const struct classes *c, const char *tokens)
{
    static char out[1024];
    struct text t = {.n = 0};
    size_t at = 0;
    for (const char *s = tokens;; s += strcspn(s, "|") + 1) {
        add(&t, s, strcspn(s, "|"));
        if (!s[strcspn(s, "|")])
            break;
    }
    cr_assert(classes_of_text(c, t.bytes, t.end, t.n, t.class, NULL) == KVF_OK);
    out[0] = 0;
    for (size_t i = 0; i < t.n; i++)
        at += (size_t)snprintf(out + at, sizeof out - at, "%s%s", i ? " " : "",
                               classes_name(c, t.class[i]));
    return out;
}

static void expect(const char *tokens, const char *want)
{
    OWNED(classes_close) struct classes *c = NULL;
    cr_assert(classes_open(NULL, &c, NULL) == KVF_OK);
    cr_expect_str_eq(named(c, tokens), want, "%s: %s", tokens, named(c, tokens));
}

Test(classes, tokens_by_hand)
{
    expect("Wait|,| the| camel| has| 12| humps|.|\n\n", "wait punctuation function word "
                                                        "function number"
                                                        " word punctuation whitespace");
    expect(" hmm|Actually|HOWEVER| let|letter", "wait wait wait wait word");
    expect("it|'s| don|'t| you|\xe2\x80\x99ll|of|off|offer",
           "function function word function "
           "function function function function word");
    expect("7| +| 2| =| 9|*|**|->|%|/|^|<|\xe2\x88\x91|\xe2\x86\x92",
           "number operator number "
           "operator"
           " number operator punctuation operator operator operator operator operator operator "
           "operator");
    expect("$|\xe2\x82\xac|\xf0\x9f\x99\x82|`|#|(|\xe3\x80\x82|\xc2\xbf",
           "symbol symbol symbol "
           "punctuation "
           "punctuation punctuation punctuation punctuation");
    expect("\xd9\xa3|\xc2\xbd|x2|3rd|3.|(4|\xe4\xb8\xad|\xd0\xb6", "number number word word "
                                                                   "number number"
                                                                   " word word");
    expect("| |\t|\xc2\xa0|\xe3\x80\x80", "whitespace whitespace whitespace whitespace whitespace");
}

Test(classes, a_hyphen_is_an_operator_between_terms)
{
    expect("10|-|4", "number operator number");
    expect("10| -| 4", "number operator number");
    expect("(|1|)| -| (|2|)", "punctuation number punctuation operator punctuation number "
                              "punctuation");
    expect("self|-|made", "word punctuation word");
    expect("-| 4", "punctuation number"); /* of a list */
    expect("a| -| 4", "function punctuation number");
}

Test(classes, rules_of_texts_see_through_the_tokenizer)
{
    expect("\\|frac|{|1|}{|2|}", "latex latex punctuation number latex number punctuation");
    expect("x|_|{|k|}| \\\\| y", "word latex latex word punctuation latex word");
    expect("a|$|$|b", "function latex latex word");
    expect("<|think|>|\n|so|</|think|>", "think think think whitespace function think think think");
    expect("<think>| think", "think word");
    expect("frac", "word");
}

/* '|' separates tokens in expect, so these tokens are made by hand. */
Test(classes, special_tokens_and_roles)
{
    static const char *const token[] = {"<|im_start|>",
                                        "user",
                                        "\n",
                                        "user",
                                        "<|im_end|>",
                                        "\n",
                                        "<|im_start|>",
                                        "assist",
                                        "ant",
                                        "\n",
                                        "<|start_header_id|>",
                                        "system",
                                        "<|end_header_id|>",
                                        "<s>",
                                        "</s>",
                                        "[INST]",
                                        "<file_sep>",
                                        "<|image_pad|>",
                                        "<image>",
                                        "<row_1_col_2>",
                                        "<\xef\xbd\x9cUser\xef\xbd\x9c>",
                                        "<b>",
                                        "<|",
                                        "<think>",
                                        "</think>",
                                        "<|endoftext|>",
                                        "<start_of_turn>",
                                        "model",
                                        "\n",
                                        "model"};
    static const uint8_t want[] = {
        CLASS_SPECIAL, CLASS_ROLE,    CLASS_SPACE,   CLASS_WORD,    CLASS_SPECIAL,  CLASS_SPACE,
        CLASS_SPECIAL, CLASS_ROLE,    CLASS_ROLE,    CLASS_SPACE,   CLASS_SPECIAL,  CLASS_ROLE,
        CLASS_SPECIAL, CLASS_SPECIAL, CLASS_SPECIAL, CLASS_SPECIAL, CLASS_SPECIAL,  CLASS_VISION,
        CLASS_VISION,  CLASS_VISION,  CLASS_SPECIAL, CLASS_WORD,    CLASS_OPERATOR, CLASS_THINK,
        CLASS_THINK,   CLASS_SPECIAL, CLASS_SPECIAL, CLASS_ROLE,    CLASS_SPACE,    CLASS_WORD};
    struct text t = {.n = 0};
    OWNED(classes_close) struct classes *c = NULL;
    for (size_t i = 0; i < sizeof token / sizeof *token; i++)
        add(&t, token[i], strlen(token[i]));
    cr_assert(classes_open(NULL, &c, NULL) == KVF_OK);
    cr_assert(classes_of_text(c, t.bytes, t.end, t.n, t.class, NULL) == KVF_OK);
    for (size_t i = 0; i < t.n; i++)
        cr_expect(t.class[i] == want[i], "%s is %s", token[i], classes_name(c, t.class[i]));
}

/* Each byte of a character has the class of the character. */
Test(classes, characters_in_pieces)
{
    static const char text[] = "\xe4\xb8\xad\xf0\x9f\x99\x82\xe3\x80\x82\xc2\xbd\xe3\x80\x80"
                               "\xe2\x88\x91";
    static const uint8_t want[] = {CLASS_WORD,   CLASS_SYMBOL, CLASS_PUNCTUATION,
                                   CLASS_NUMBER, CLASS_SPACE,  CLASS_OPERATOR};
    static const size_t length[] = {3, 4, 3, 2, 3, 3};
    struct text t = {.n = 0};
    OWNED(classes_close) struct classes *c = NULL;
    for (size_t i = 0; i < sizeof text - 1; i++)
        add(&t, text + i, 1);
    cr_assert(classes_open(NULL, &c, NULL) == KVF_OK);
    cr_assert(classes_of_text(c, t.bytes, t.end, t.n, t.class, NULL) == KVF_OK);
    for (size_t k = 0, i = 0; k < 6; k++)
        for (size_t b = 0; b < length[k]; b++, i++)
            cr_expect(t.class[i] == want[k], "byte %zu is %s", i, classes_name(c, t.class[i]));
}

/* Any bytes, cut anywhere, get a class.  Only ill-formed bytes are words, because no class fits
 * better. */
Test(classes, any_bytes)
{
    OWNED(mem_free) struct text *t = MEM_NEW(struct text, 1);
    OWNED(classes_close) struct classes *c = NULL;
    struct rng r = rng_seeded(7);
    cr_assert(classes_open(NULL, &c, NULL) == KVF_OK);
    for (int round = 0; round < 300; round++) {
        t->n = 0;
        for (size_t at = 0; at < 200;) {
            char s[8];
            size_t len = rng_next(&r) % 6;
            for (size_t k = 0; k < len; k++)
                s[k] = (char)(rng_next(&r) % 4 ? rng_next(&r) : 0xe4 + rng_next(&r) % 4);
            add(t, s, len);
            at += len;
        }
        memset(t->class, 99, sizeof t->class);
        cr_assert(classes_of_text(c, t->bytes, t->end, t->n, t->class, NULL) == KVF_OK);
        for (size_t i = 0; i < t->n; i++)
            cr_assert(t->class[i] < CLASS_UNKNOWN);
        cr_assert(t->class[t->n] == 99);
    }
    cr_assert(classes_of_text(c, "", t->end, 0, t->class, NULL) == KVF_OK);
    t->n = 0;
    add(t, "\xff\xfe", 2);
    add(t, "\xc3", 1); /* its second byte is missing */
    cr_assert(classes_of_text(c, t->bytes, t->end, t->n, t->class, NULL) == KVF_OK);
    cr_expect(t->class[0] == CLASS_WORD && t->class[1] == CLASS_WORD);
}

Test(classes, rules_of_users_come_first_in_their_order)
{
    struct kvf_diag d = {""};
    static const char *const forms[] = {
        "{\"salt\": \"salt\", \"water\": \"^ ?[sw]\", \"word\": \"^7$\"}",
        "[[\"salt\", \"salt\"], [\"water\", \"^ ?[sw]\"], [\"word\", \"^7$\"]]",
        "[{\"salt\": \"salt\"}, [\"water\", \"^ ?[sw]\"], {\"word\": \"^7$\"}]"};
    for (int k = 0; k < 3; k++) {
        OWNED(classes_close) struct classes *c = open_json(forms[k], KVF_OK, &d);
        cr_expect_str_eq(named(c, " salty| sea|wait|7|8|sail"),
                         "salt water water word number water");
        cr_expect(classes_count(c) == N_BUILT_IN_CLASSES + 2);
    }
    struct classes *c = open_json("{\"water\": \"^ ?[sw]\", \"salt\": \"salt\"}", KVF_OK, &d);
    cr_expect_str_eq(named(c, " salty| a salt"), "water salt");
    classes_close(c);
    c = open_json("[[\"rest\", \"\"]]", KVF_OK, &d); /* the empty expression matches everywhere */
    cr_expect_str_eq(named(c, "7|x||."), "rest rest rest rest");
    classes_close(c);
    c = open_json("[[\"a\", \"\xc3\xa9\"], [\"b\", \"x\"], [\"a\", \"(?i)Y\"]]", KVF_OK, &d);
    cr_expect_str_eq(named(c, "caf\xc3\xa9|x|xy|y"), "a b b a");
    classes_close(c);
}

Test(classes, files_that_are_none)
{
    struct kvf_diag d = {""};
    static const char *const wrong[] = {"",
                                        "7",
                                        "\"x\"",
                                        "{\"a\": 1}",
                                        "{\"a\": \"(\"}",
                                        "[\"a\", \"b\"]",
                                        "[[\"a\"]]",
                                        "[[\"a\", \"b\", \"c\"]]",
                                        "[[1, \"b\"]]",
                                        "{\"\": \"x\"}",
                                        "{\"all\": \"x\"}",
                                        "{\"a\\nb\": \"x\"}",
                                        "{\"a\": \"\\\\C\"}",
                                        "{\"a\": \"x\", \"a\": \"y\"}",
                                        "{\"a23456789012345678901234567890123\": \"x\"}",
                                        "{\"a\": \"[[:nonsense:]]\"}"};
    for (size_t k = 0; k < sizeof wrong / sizeof *wrong; k++) {
        d.text[0] = 0;
        open_json(wrong[k], KVF_E_FORMAT, &d);
        cr_expect(d.text[0] && !strchr(d.text, '\n'), "%s: %s", wrong[k], d.text);
    }
    char *many = MEM_NEW(char, 8192), *s = many + sprintf(many, "[");
    for (int k = 0; k <= CLASSES_MOST_RULES; k++)
        s += sprintf(s, "%s[\"c%d\", \"x\"]", k ? "," : "", k);
    sprintf(s, "]");
    open_json(many, KVF_E_LIMIT, &d);
    memset(many, 'x', 5000);
    memcpy(many, "{\"a\": \"", 7);
    memcpy(many + 5000, "\"}", 3);
    open_json(many, KVF_E_LIMIT, &d);
    mem_free(many);
    struct classes *c = NULL;
    cr_expect(classes_open("no such file", &c, &d) == KVF_E_IO && strstr(d.text, "no such file"));
}

/* Expressions with exponential running time stop at their step limit. */
Test(classes, hostile_rules_end)
{
    static const char *const hostile[] = {"{\"a\": \"^(a+)+$\"}", "{\"a\": \"(a|aa)+$\"}",
                                          "{\"a\": \"^(?:(?:a?){20}){20}[bd]\"}",
                                          "{\"a\": \"(.*)(.*)(.*)(.*)(.*)(.*)(.*)[bd]\"}"};
    OWNED(mem_free) struct text *t = MEM_NEW(struct text, 1);
    struct kvf_diag d;
    for (size_t k = 0; k < sizeof hostile / sizeof *hostile; k++) {
        OWNED(classes_close) struct classes *c = open_json(hostile[k], KVF_OK, &d);
        t->n = 0;
        for (int i = 0; i < 10; i++)
            add(t, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaac", 61);
        d.text[0] = 0;
        clock_t before = clock();
        cr_expect(classes_of_text(c, t->bytes, t->end, t->n, t->class, &d) == KVF_E_LIMIT
                      && strstr(d.text, "\"a\""),
                  "%s: %s", hostile[k], d.text);
        cr_expect(clock() - before < 5 * CLOCKS_PER_SEC, "%s", hostile[k]);
    }
    /* deep recursion: memory is limited */
    struct classes *c = open_json("{\"a\": \"^(a(?1)?b?)+$|(?R)*x\"}", KVF_OK, &d);
    int err = classes_of_text(c, t->bytes, t->end, t->n, t->class, &d);
    cr_expect(err == KVF_OK || err == KVF_E_LIMIT);
    classes_close(c);
}
