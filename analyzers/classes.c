/* classes.c - classes of tokens by regular expressions of PCRE2 (classes.h). */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdio.h>
#include <string.h>

#include "analyzers/classes.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/utf8.h"

enum {
    MOST_FILE = 1 << 20,
    STEPS = 1000000,
    STEPS_PER_TOKEN = 2000,
    HEAP_KIB = 8192,
    UNASSIGNED = 255,
    ILL_FORMED = 0x1a /* a control character: in no class of characters */
};

static const char *const built_in_names[N_BUILT_IN_CLASSES] = {
    "vision", "think",    "special",  "role",        "whitespace", "latex", "number",
    "wait",   "function", "operator", "punctuation", "symbol",     "word",  "unknown",
};

/* Words that are a token's complete text, except spaces before them. */
#define WORDS(list) "(?i)\\A\\s*(?:" list ")\\z"

#define FUNCTION_WORDS                                                                             \
    "a|an|the|this|that|these|those|each|every|some|any|no|all|both|either|neither|another|such|"  \
    "i|me|my|mine|myself|you|your|yours|yourself|he|him|his|himself|she|her|hers|herself|"         \
    "it|its|itself|we|us|our|ours|ourselves|they|them|their|theirs|themselves|"                    \
    "who|whom|whose|what|which|when|where|why|how|"                                                \
    "of|in|on|at|by|for|with|from|to|into|onto|over|under|about|above|below|between|among|"        \
    "through|during|before|after|against|within|without|toward|towards|upon|across|along|"         \
    "around|behind|beside|beyond|near|off|out|up|down|since|until|till|per|via|as|than|"           \
    "and|or|but|nor|so|yet|if|because|although|though|while|whereas|unless|whether|"               \
    "am|is|are|was|were|be|been|being|do|does|did|done|have|has|had|having|"                       \
    "will|would|shall|should|can|could|may|might|must|ought|not|there|here|then|too|also|"         \
    "(?:n?['\\x{2019}])(?:s|t|re|ve|m|ll|d)"

#define WAIT_WORDS                                                                                 \
    "wait|h+m+|u+h+m*|oh+|ah+a?|oops|whoops|actually|alternatively|however|instead|otherwise|"     \
    "maybe|perhaps|let|recheck|rethink|reconsider"

/* In the order in which they are tried; classes may repeat. */
static const struct {
    uint8_t class;
    bool of_text;
    const char *regex;
} built_in[] = {
    {CLASS_VISION, false,
     "\\A<[|/]?(?:vision|image|img|video|audio|fake_token_around_image|global-img|"
     "row_\\d+_col_\\d+)(?:[_-][\\w-]*)?\\|?>\\z"},
    {CLASS_THINK, true, "<[|/]{0,2}(?:think|thinking|begin_of_thought|end_of_thought)\\|?>"},
    {CLASS_SPECIAL, false,
     "\\A(?:<[|\\x{FF5C}].*[|\\x{FF5C}]>|</?s>|<(?:pad|unk|bos|eos|mask|reponame|filename)>|"
     "</?[a-z]+(?:_[a-z]+)+>|\\[(?:/?INST|CLS|SEP|PAD|UNK|MASK|BOS|EOS)\\])\\z"},
    {CLASS_ROLE, true,
     "(?:<\\|im_start\\|>|<\\|(?:start_)?header_(?:id|start)\\|>|<start_of_turn>)\\K[^\\n<]{1,40}"},
    {CLASS_SPACE, false, "\\A\\s*\\z"},
    {CLASS_LATEX, true, "\\\\(?:[A-Za-z]+\\*?|[^A-Za-z\\s])|[_^]\\{|\\}\\{|\\$\\$"},
    {CLASS_NUMBER, false, "\\A[^\\p{L}\\p{M}]*\\p{N}[^\\p{L}\\p{M}]*\\z"},
    {CLASS_WAIT, false, WORDS(WAIT_WORDS)},
    {CLASS_FUNCTION, false, WORDS(FUNCTION_WORDS)},
    {CLASS_OPERATOR, true, "(?<=[\\p{N})}\\]]|[\\p{N})}\\]]\\s)-(?=\\s?[\\p{N}(\\\\{$])"},
    {CLASS_OPERATOR, false,
     "\\A(?!\\s*\\*\\*)[^\\p{L}\\p{M}\\p{N}]*[\\p{Sm}%^/*][^\\p{L}\\p{M}\\p{N}]*\\z"},
    {CLASS_PUNCTUATION, false, "\\A[^\\p{L}\\p{M}\\p{N}]*[\\p{P}`][^\\p{L}\\p{M}\\p{N}]*\\z"},
    {CLASS_SYMBOL, false, "\\A[^\\p{L}\\p{M}\\p{N}]*\\p{S}[^\\p{L}\\p{M}\\p{N}]*\\z"},
};
enum {
    N_BUILT_IN_RULES = sizeof built_in / sizeof *built_in,
    MOST_RULES = N_BUILT_IN_RULES + CLASSES_MOST_RULES
};

struct rule {
    uint8_t class;
    bool of_text, of_user;
    pcre2_code *code; /* owned */
};

struct classes {
    struct rule rule[MOST_RULES];
    int n_rules, n_classes;
    char name[CLASSES_MOST][CLASSES_MOST_NAME + 1];
    struct buf user; /* the user's rules as JSON */
};

/* ---- the rules */

static int add_rule(struct classes *c, int class, bool of_text, bool of_user, const char *regex,
                    struct kvf_diag *d)
{
    uint32_t flags = PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C;
    int code = 0;
    PCRE2_SIZE at = 0;
    PCRE2_UCHAR text[120] = "";
    struct rule *r = &c->rule[c->n_rules];
    /* Callouts at every item are where steps are counted. */
    r->code = pcre2_compile((PCRE2_SPTR)regex, strlen(regex),
                            flags | (of_user ? PCRE2_AUTO_CALLOUT : 0), &code, &at, NULL);
    if (!r->code) {
        pcre2_get_error_message(code, text, sizeof text);
        return kvf_fail(d, KVF_E_FORMAT, "class \"%s\": %s at character %zu of the expression",
                        c->name[class], (const char *)text, (size_t)at + 1);
    }
    r->class = (uint8_t) class;
    r->of_text = of_text;
    r->of_user = of_user;
    c->n_rules++;
    return KVF_OK;
}

static int class_named(struct classes *c, const char *name)
{
    int k = 0;
    while (k < c->n_classes && strcmp(c->name[k], name) != 0)
        k++;
    if (k == c->n_classes)
        snprintf(c->name[c->n_classes++], sizeof c->name[0], "%s", name);
    return k;
}

static int add_user_rule(struct classes *c, const char *name, const char *regex, struct kvf_diag *d)
{
    struct buf shown = {0};
    size_t n = name ? strlen(name) : 0;
    if (!name || !regex)
        return kvf_fail(d, KVF_E_FORMAT,
                        "classes are {\"NAME\": \"REGEX\", ...} or "
                        "[[\"NAME\", \"REGEX\"], ...]");
    if (c->n_rules == CLASSES_MOST_RULES)
        return kvf_fail(d, KVF_E_LIMIT, "more than %d regular expressions of classes",
                        CLASSES_MOST_RULES);
    utf8_show(&shown, name, n);
    bool plain = !shown.err && shown.len == n && n && !memchr(name, '"', n);
    buf_finish(&shown);
    if (!plain || n > CLASSES_MOST_NAME || strcmp(name, "all") == 0)
        return kvf_fail(d, KVF_E_FORMAT,
                        "names of classes have 1 to %d bytes, no quotes or control"
                        " characters, and are not \"all\"",
                        CLASSES_MOST_NAME);
    if (strlen(regex) > CLASSES_MOST_REGEX)
        return kvf_fail(d, KVF_E_LIMIT, "class \"%s\": the expression is longer than %d bytes",
                        name, CLASSES_MOST_REGEX);
    buf_char(&c->user, c->user.len ? ',' : '[');
    buf_char(&c->user, '[');
    json_put_str(&c->user, name, n);
    buf_char(&c->user, ',');
    json_put_str(&c->user, regex, strlen(regex));
    buf_char(&c->user, ']');
    return c->user.err ? c->user.err : add_rule(c, class_named(c, name), false, true, regex, d);
}

/* The rules of one object, or of a pair. */
static int add_user_rules(struct classes *c, const struct json *node, struct kvf_diag *d)
{
    int err = KVF_OK;
    if (!json_is_object(node))
        return add_user_rule(c, json_len(node) == 2 ? json_str(json_at(node, 0), NULL) : NULL,
                             json_str(json_at(node, 1), NULL), d);
    for (const struct json *m = json_first(node); !err && m; m = json_next(m))
        err = add_user_rule(c, json_key(m), json_str(m, NULL), d);
    return err;
}

static int parse_user(struct classes *c, const struct buf *in, struct kvf_diag *d)
{
    struct json *root = NULL;
    int err = json_parse(in->data ? in->data : "", in->len, &root, d);
    if (err)
        return err;
    if (!json_is_array(root))
        err = add_user_rules(c, root, d);
    else
        for (const struct json *m = json_first(root); !err && m; m = json_next(m))
            err = add_user_rules(c, m, d);
    json_free(root);
    if (!err && c->user.len)
        buf_char(&c->user, ']');
    return err ? err : c->user.err;
}

static int read_user(struct classes *c, const char *path, struct kvf_diag *d)
{
    struct kvf_diag why = {""};
    struct buf in = {.max = MOST_FILE};
    char piece[4096];
    FILE *f = fopen(path, "rb");
    if (!f)
        return kvf_fail(d, KVF_E_IO, "cannot open the classes %s", path);
    size_t n = 1;
    while (n && !in.err) {
        n = fread(piece, 1, sizeof piece, f);
        buf_add(&in, piece, n);
    }
    int err = in.err;
    if (ferror(f))
        err = kvf_fail(&why, KVF_E_IO, "cannot be read");
    else if (err == KVF_E_LIMIT)
        kvf_fail(&why, KVF_E_LIMIT, "more than %d bytes", MOST_FILE);
    fclose(f);
    if (!err)
        err = parse_user(c, &in, &why);
    buf_finish(&in);
    return err && why.text[0] ? kvf_fail(d, err, "%s: %s", path, why.text) : err;
}

int classes_open(const char *path, struct classes **ret, struct kvf_diag *d)
{
    struct classes *c = MEM_NEW(struct classes, 1);
    if (!c)
        return KVF_E_NOMEM;
    for (int k = 0; k < N_BUILT_IN_CLASSES; k++)
        class_named(c, built_in_names[k]);
    int err = path ? read_user(c, path, d) : KVF_OK;
    for (int r = 0; !err && r < N_BUILT_IN_RULES; r++)
        err = add_rule(c, built_in[r].class, built_in[r].of_text, false, built_in[r].regex, d);
    if (err)
        classes_close(c);
    else
        *ret = c;
    return err;
}

void classes_close(struct classes *c)
{
    for (int r = 0; c && r < c->n_rules; r++)
        pcre2_code_free(c->rule[r].code);
    if (c)
        buf_finish(&c->user);
    mem_free(c);
}

int classes_count(const struct classes *c)
{
    return c->n_classes;
}

const char *classes_name(const struct classes *c, int class)
{
    return c->name[class];
}

void classes_note(const struct classes *c, struct table *out)
{
    if (c->user.len)
        table_meta_str(out, "classes", c->user.data);
}

/* ---- the tokens */

struct work {
    const char *text; /* well-formed UTF-8 */
    const size_t *end;
    size_t n;
    uint8_t *class;
    pcre2_match_data *match;
    pcre2_match_context *context;
    uint64_t steps, most_steps; /* of the rule at work */
};

static int count_step(pcre2_callout_block *b, void *work)
{
    struct work *w = work;
    (void)b;
    return ++w->steps > w->most_steps ? PCRE2_ERROR_CALLOUT : 0;
}

/* As pcre2_match; text rules continue at a place of the document. */
static int match(struct work *w, const struct rule *r, const char *s, size_t n, size_t at)
{
    return pcre2_match(r->code, (PCRE2_SPTR)s, n, at, PCRE2_NO_UTF_CHECK, w->match, w->context);
}

static bool inside(char c) /* of a character, not its first byte */
{
    return ((unsigned char)c & 0xc0) == 0x80;
}

static int apply_to_tokens(struct work *w, const struct rule *r)
{
    size_t all = w->n ? w->end[w->n - 1] : 0;
    for (size_t i = 0; i < w->n; i++) {
        size_t a = i ? w->end[i - 1] : 0, b = w->end[i];
        if (w->class[i] != UNASSIGNED)
            continue;
        while (b > a && a && inside(w->text[a]))
            a--;
        if (b > a + CLASSES_MOST_TEXT)
            b = a + CLASSES_MOST_TEXT;
        while (b > a && b < all && inside(w->text[b]))
            b++;
        int rc = match(w, r, w->text + a, b - a, 0);
        if (rc >= 0)
            w->class[i] = r->class;
        else if (rc != PCRE2_ERROR_NOMATCH)
            return rc;
    }
    return 0;
}

static int apply_to_text(struct work *w, const struct rule *r)
{
    size_t all = w->n ? w->end[w->n - 1] : 0, at = 0, i = 0;
    const PCRE2_SIZE *v = pcre2_get_ovector_pointer(w->match);
    while (at < all) {
        int rc = match(w, r, w->text, all, at);
        if (rc < 0)
            return rc == PCRE2_ERROR_NOMATCH ? 0 : rc;
        while (w->end[i] <= v[0])
            i++;
        for (size_t k = i; k < w->n && (k == i || w->end[k - 1] < v[1]); k++)
            if (w->class[k] == UNASSIGNED && w->end[k] > (k ? w->end[k - 1] : 0))
                w->class[k] = r->class;
        at = v[1] > at ? v[1] : at + 1; /* no built-in rule matches the empty text */
    }
    return 0;
}

static int apply(const struct classes *c, struct work *w, struct kvf_diag *d)
{
    for (int k = 0; k < c->n_rules; k++) {
        const struct rule *r = &c->rule[k];
        w->steps = 0;
        int rc = r->of_text ? apply_to_text(w, r) : apply_to_tokens(w, r);
        if (rc == PCRE2_ERROR_NOMEMORY)
            return KVF_E_NOMEM;
        if (rc)
            return kvf_fail(d, KVF_E_LIMIT,
                            "class \"%s\": its expression takes too many steps or "
                            "too much memory on these tokens",
                            c->name[r->class]);
    }
    for (size_t i = 0; i < w->n; i++)
        w->class[i] = w->class[i] == UNASSIGNED ? CLASS_WORD : w->class[i];
    return KVF_OK;
}

/* A copy of equal length in which each ill-formed byte is ILL_FORMED. */
static char *well_formed(const char *text, size_t n)
{
    char *copy = MEM_NEW(char, n + 1);
    uint32_t cp;
    for (size_t i = 0, len; copy && i < n; i += len) {
        len = utf8_decode(text + i, n - i, &cp);
        if (len)
            memcpy(copy + i, text + i, len);
        else
            copy[i] = ILL_FORMED;
        len = len ? len : 1;
    }
    return copy;
}

int classes_of_text(const struct classes *c, const char *text, const size_t *end, size_t n,
                    uint8_t *ret_class, struct kvf_diag *d)
{
    char *clean = well_formed(text, n ? end[n - 1] : 0);
    struct work w = {clean,
                     end,
                     n,
                     ret_class,
                     pcre2_match_data_create(1, NULL),
                     pcre2_match_context_create(NULL),
                     0,
                     STEPS + STEPS_PER_TOKEN * (uint64_t)n};
    int err = KVF_E_NOMEM;
    if (clean && w.match && w.context) {
        pcre2_set_callout(w.context, count_step, &w);
        pcre2_set_heap_limit(w.context, HEAP_KIB);
        memset(ret_class, UNASSIGNED, n);
        err = apply(c, &w, d);
    }
    pcre2_match_context_free(w.context);
    pcre2_match_data_free(w.match);
    mem_free(clean);
    return err;
}

int classes_of_trace(const struct classes *c, struct kvf_trace *t, uint8_t *ret_class,
                     struct kvf_diag *d)
{
    uint32_t T = kvf_n_steps(t);
    struct buf text = {0};
    size_t *end = MEM_NEW(size_t, T);
    int err = end ? kvf_texts(t) : KVF_E_NOMEM;
    for (uint32_t i = 0; !err && i < T; i++) {
        size_t len = 0;
        const char *s = kvf_token(t, i, &len);
        buf_add(&text, s ? s : "", s ? len : 0);
        end[i] = text.len;
    }
    err = err ? err : text.err;
    if (!err)
        err = classes_of_text(c, text.data ? text.data : "", end, T, ret_class, d);
    for (uint32_t i = 0; !err && i < T; i++) {
        size_t len;
        if (!kvf_token(t, i, &len))
            ret_class[i] = CLASS_UNKNOWN;
    }
    buf_finish(&text);
    mem_free(end);
    return err;
}
