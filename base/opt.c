/* opt.c - parses options and prints their help (opt.h). */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/opt.h"

bool opt_int(const char *s, int64_t *ret)
{
    char *end;
    errno = 0;
    long long v = strtoll(s, &end, 10);
    if (end == s || errno)
        return false;
    int64_t scale = 1;
    if (*end == 'k' || *end == 'K')
        scale = 1024;
    else if (*end == 'M')
        scale = 1024 * 1024;
    if (scale != 1)
        end++;
    int64_t n;
    if (*end || __builtin_mul_overflow((int64_t)v, scale, &n))
        return false;
    *ret = n;
    return true;
}

bool opt_real(const char *s, double *ret)
{
    char *end;
    double v = strtod(s, &end);
    if (end == s || *end || !isfinite(v))
        return false;
    *ret = v;
    return true;
}

int opt_range(const char *option, const char *text, int64_t *a, int64_t *b, struct kvf_diag *d)
{
    char left[32];
    size_t n = strcspn(text, ":");
    int64_t from = *a, to = *b;
    bool ok = text[n] && n < sizeof left;
    snprintf(left, sizeof left, "%.*s", ok ? (int)n : 0, text);
    ok = ok && (!n || (opt_int(left, &from) && from >= 0))
         && (!text[n + 1] || (opt_int(text + n + 1, &to) && to >= 0));
    if (!ok)
        return kvf_fail(d, KVF_E_ARG, "%s needs a range A:B such as 0:512, 100: or :50, not '%s'",
                        option, text);
    *a = from;
    *b = to;
    return KVF_OK;
}

int opt_range_fit(const char *option, const char *unit, const char *owner, int64_t n,
                  const int64_t *a, int64_t *b, struct kvf_diag *d)
{
    char end[24] = "";
    if (*b >= 0)
        snprintf(end, sizeof end, "%lld", (long long)*b);
    int64_t to = *b < 0 ? n : *b;
    if (*a > n || to > n || (*a == n && n > 0))
        return kvf_fail(d, KVF_E_ARG, "%s %lld:%s: %s has the %s 0 to %lld", option, (long long)*a,
                        end, owner, unit, (long long)n - 1);
    if (*a > to)
        return kvf_fail(d, KVF_E_ARG, "%s %lld:%s: the range ends before it begins", option,
                        (long long)*a, end);
    if (*a == to && n > 0)
        return kvf_fail(d, KVF_E_ARG, "%s %lld:%s: the range has no %s; A:B is A to B - 1", option,
                        (long long)*a, end, unit);
    *b = to;
    return KVF_OK;
}

int opt_pair(const char **s, char *key, char *value, int cap)
{
    const char *p = *s;
    if (!*p)
        return 0;
    size_t len = strcspn(p, ","), k = strcspn(p, "=,");
    size_t v = k < len ? len - k - 1 : 0;
    if (k == 0 || k >= (size_t)cap || v >= (size_t)cap)
        return KVF_E_ARG;
    memcpy(key, p, k);
    key[k] = 0;
    memcpy(value, p + len - v, v);
    value[v] = 0;
    p += len;
    if (*p == ',' && !*++p)
        return KVF_E_ARG; /* a comma must be followed by a pair */
    *s = p;
    return 1;
}

/* ---- walking */

struct opt_walk opt_walk(const struct opt *list)
{
    struct opt_walk w = {.depth = 1};
    w.level[0].next = list;
    return w;
}

const struct opt *opt_next(struct opt_walk *w)
{
    while (w->depth > 0) {
        int at = w->depth - 1;
        const struct opt *o = w->level[at].next;
        if (!o || o->type == OPT_END) {
            w->depth--;
            continue;
        }
        w->level[at].next = o + 1;
        w->offset = w->level[at].offset + o->offset;
        w->group = w->level[at].group;
        if (o->type != OPT_GROUP)
            return o;
        if (w->depth < OPT_DEPTH) {
            w->level[at + 1].next = o->group;
            w->level[at + 1].offset = w->offset;
            w->level[at + 1].group = o->name ? o->name : w->group;
            w->depth++;
        }
    }
    return NULL;
}

static const struct opt *find_long(const struct opt *list, const char *name, size_t n,
                                   size_t *ret_offset)
{
    struct opt_walk w = opt_walk(list);
    for (const struct opt *o = opt_next(&w); o; o = opt_next(&w))
        if (o->name && strlen(o->name) == n && memcmp(o->name, name, n) == 0) {
            *ret_offset = w.offset;
            return o;
        }
    return NULL;
}

static const struct opt *find_short(const struct opt *list, char c, size_t *ret_offset)
{
    struct opt_walk w = opt_walk(list);
    for (const struct opt *o = opt_next(&w); o; o = opt_next(&w))
        if (c && o->short_name == c) {
            *ret_offset = w.offset;
            return o;
        }
    return NULL;
}

const struct opt *opt_find(const struct opt *list, const char *name, size_t *ret_offset)
{
    return find_long(list, name, strlen(name), ret_offset);
}

/* ---- words that are near */

enum { MOST_LETTERS = 63, FAR = 99 };

static int lower(char c)
{
    return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c;
}

int opt_distance(const char *a, const char *b)
{
    int row[MOST_LETTERS + 1]; /* of the first i letters of a and the first j of b */
    size_t n = strlen(a), m = strlen(b);
    if (n > MOST_LETTERS || m > MOST_LETTERS)
        return FAR;
    for (size_t j = 0; j <= m; j++)
        row[j] = (int)j;
    for (size_t i = 1; i <= n; i++) {
        int corner = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= m; j++) {
            int above = row[j], best = corner + (lower(a[i - 1]) != lower(b[j - 1]));
            if (above + 1 < best)
                best = above + 1;
            if (row[j - 1] + 1 < best)
                best = row[j - 1] + 1;
            corner = above;
            row[j] = best;
        }
    }
    return row[m];
}

/* Whether `typed` is nearer to a word than the nearest before; a third of its letters may differ.
 */
static bool nearer(const char *typed, const char *word, int *best)
{
    int far = opt_distance(typed, word), most = ((int)strlen(typed) + 2) / 3;
    if (far >= *best || far > most)
        return false;
    *best = far;
    return true;
}

const char *opt_near(const char *const *words, const char *typed)
{
    const char *near = NULL;
    int best = FAR;
    for (; *words; words++)
        if (nearer(typed, *words, &best))
            near = *words;
    return near;
}

/* Names that other programs give to options, and ours. A name may have several of ours; the first
 * one that the command has is suggested. */
static const char *const option_synonyms[][2] = {
    {"prompt-file", "file"},
    {"input", "file"},
    {"in", "file"},
    {"max-new-tokens", "predict"},
    {"max-tokens", "predict"},
    {"n-predict", "predict"},
    {"num-tokens", "predict"},
    {"temperature", "temp"},
    {"compression-ratio", "budget"},
    {"ratio", "budget"},
    {"cache-size", "budget"},
    {"capacity", "budget"},
    {"policy", "method"},
    {"press", "method"},
    {"strategy", "method"},
    {"policy", "methods"},
    {"method", "methods"},
    {"budget", "budgets"},
    {"out", "output"},
    {"save", "output"},
    {"format", "output"},
    {"outfile", "output"},
    {"clobber", "overwrite"},
    {"replace", "overwrite"},
    {"jobs", "threads"},
    {"cores", "threads"},
    {"silent", "quiet"},
    {"debug", "verbose"},
    {"gpu", "device"},
    {"cuda", "device"},
    {"ctx-size", "context"},
    {"max-length", "context"},
    {"n-ctx", "context"},
    {"figsize", "size"},
    {"width", "size"},
    {"height", "size"},
    {"colormap", "cmap"},
    {"palette", "cmap"},
    {"layer", "head"},
    {"layers", "head"},
    {"dataset", "data"},
    {"input", "data"},
    {"samples", "docs"},
    {"kind", "as"},
    {"type", "as"},
    {"template", "chat"},
    {"question", "ask"},
    {"dtype", "kv-type"},
};

/* Returns the name of the option that a wrong name likely means: a synonym, a near name, or a name
 * that begins as the wrong one does. Returns NULL if there is none. */
static const char *near_option(const struct opt *list, const char *typed)
{
    const char *near = NULL, *longer = NULL;
    size_t at, n = strlen(typed);
    int best = FAR;
    for (size_t i = 0; i < sizeof option_synonyms / sizeof *option_synonyms; i++) {
        const char *ours = option_synonyms[i][1];
        const struct opt *o = opt_find(list, ours, &at);
        if (strcmp(option_synonyms[i][0], typed) == 0 && o && o->type != OPT_BARRED)
            return ours;
    }
    struct opt_walk w = opt_walk(list);
    for (const struct opt *o = opt_next(&w); o; o = opt_next(&w)) {
        if (!o->name || o->type == OPT_BARRED)
            continue;
        if (nearer(typed, o->name, &best))
            near = o->name;
        if (!longer && n >= 3 && strncmp(o->name, typed, n) == 0)
            longer = o->name;
    }
    return near ? near : longer;
}

/* ---- storing */

static int out_of_range(const struct opt *o, const char *shown, struct kvf_diag *d)
{
    return kvf_fail(d, KVF_E_ARG, "%s must be between %.15g and %.15g", shown, o->min, o->max);
}

static bool outside(const struct opt *o, double v)
{
    return (o->min != 0 || o->max != 0) && (v < o->min || v > o->max);
}

static int store_int(const struct opt *o, int64_t *at, const char *shown, const char *v,
                     struct kvf_diag *d)
{
    int64_t n;
    if (!opt_int(v, &n))
        return kvf_fail(d, KVF_E_ARG, "%s needs a whole number, not '%s'", shown, v);
    if (outside(o, (double)n))
        return out_of_range(o, shown, d);
    *at = n;
    return KVF_OK;
}

static int store_real(const struct opt *o, double *at, const char *shown, const char *v,
                      struct kvf_diag *d)
{
    double x;
    if (!opt_real(v, &x))
        return kvf_fail(d, KVF_E_ARG, "%s needs a number, not '%s'", shown, v);
    if (outside(o, x))
        return out_of_range(o, shown, d);
    *at = x;
    return KVF_OK;
}

/* "auto, all or none" */
static void list_words(const char *const *words, struct buf *b)
{
    for (int i = 0; words[i]; i++) {
        if (i)
            buf_str(b, words[i + 1] ? ", " : " or ");
        buf_str(b, words[i]);
    }
}

/* Values that other programs take, and ours. */
static const char *const value_synonyms[][2] = {
    {"gpu", "cuda"}, {"nvidia", "cuda"}, {"fp16", "f16"},  {"float16", "f16"}, {"half", "f16"},
    {"fp32", "f32"}, {"float32", "f32"}, {"int8", "q8_0"}, {"int16", "i16"},   {"q8", "q8_0"},
};

/* Returns the word that a wrong value likely means; NULL if there is none. */
static const char *near_value(const char *const *words, const char *typed)
{
    for (size_t i = 0; i < sizeof value_synonyms / sizeof *value_synonyms; i++)
        for (int k = 0; strcasecmp(value_synonyms[i][0], typed) == 0 && words[k]; k++)
            if (strcmp(words[k], value_synonyms[i][1]) == 0)
                return words[k];
    return opt_near(words, typed);
}

static int store_word(const struct opt *o, int *at, const char *shown, const char *v,
                      struct kvf_diag *d)
{
    for (int i = 0; o->words[i]; i++)
        if (strcmp(o->words[i], v) == 0) {
            *at = i + (int)o->min;
            return KVF_OK;
        }
    struct buf known = {0};
    const char *near = near_value(o->words, v);
    list_words(o->words, &known);
    int err = kvf_fail(d, KVF_E_ARG, "%s is %s, not '%s'%s%s%s", shown,
                       known.err ? "another word" : known.data, v, near ? " (did you mean '" : "",
                       near ? near : "", near ? "'?)" : "");
    buf_finish(&known);
    return err;
}

int opt_list_add(struct opt_list *l, const char *text)
{
    if (l->n == l->cap) {
        int cap = l->cap ? 2 * l->cap : 8;
        const char **item = mem_grow(l->item, (size_t)l->cap, (size_t)cap, sizeof *item);
        if (!item)
            return KVF_E_NOMEM;
        l->item = item;
        l->cap = cap;
    }
    l->item[l->n++] = text;
    return KVF_OK;
}

void opt_list_free(struct opt_list *l)
{
    mem_free(l->item);
    *l = (struct opt_list){0};
}

/* Whether the name of a value shows this ending: "OUT.kvf", "MODEL.gguf|ADAPTER.safetensors". */
static bool shows_ending(const char *arg, const char *end)
{
    size_t n = strlen(end);
    for (const char *at = strchr(arg, '.'); at; at = strchr(at + 1, '.'))
        if (strncasecmp(at, end, n) == 0 && (at[n] == 0 || at[n] == '|'))
            return true;
    return false;
}

/* An output needs a name in every command.  If the help shows an ending, the name may not have that
 * of another format. */
static int check_output(const struct opt *o, const char *shown, const char *v, struct kvf_diag *d)
{
    static const char *const formats[] = {
        ".kvf", ".png",   ".svg", ".pdf", ".webp", ".html", ".tsv", ".csv",    ".json",
        ".npz", ".jsonl", ".npy", ".txt", ".md",   ".gguf", ".zip", ".sqlite", ".safetensors"};
    const char *end = strrchr(v, '.');
    if (!v[0])
        return kvf_fail(d, KVF_E_ARG, "%s: the name of the output file is empty", shown);
    if (!end || !strchr(o->arg, '.') || shows_ending(o->arg, end))
        return KVF_OK;
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (strcasecmp(end, formats[i]) == 0)
            return kvf_fail(d, KVF_E_ARG, "%s %.200s: %s is another format; write %s %s", shown, v,
                            end, shown, o->arg);
    return KVF_OK;
}

static int store(const struct opt *o, void *at, const char *shown, const char *v,
                 struct kvf_diag *d)
{
    switch (o->type) {
    case OPT_STR:
        if (o->short_name == 'o' && check_output(o, shown, v, d) != KVF_OK)
            return KVF_E_ARG;
        *(const char **)at = v;
        return KVF_OK;
    case OPT_INT:
        return store_int(o, at, shown, v, d);
    case OPT_REAL:
        return store_real(o, at, shown, v, d);
    case OPT_WORD:
        return store_word(o, at, shown, v, d);
    case OPT_LIST:
        return opt_list_add(at, v);
    default:
        return kvf_fail(d, KVF_E_ARG, "%s takes no value", shown);
    }
}

static void *place(void *base, size_t offset)
{
    return (char *)base + offset;
}

int opt_defaults(const struct opt *list, void *base, struct kvf_diag *d)
{
    struct opt_walk w = opt_walk(list);
    for (const struct opt *o = opt_next(&w); o; o = opt_next(&w)) {
        if (!o->standard)
            continue;
        struct opt any = *o; /* a default may be outside of the range */
        any.min = any.max = 0;
        if (o->type == OPT_REAL && strcmp(o->standard, "nan") == 0) {
            *(double *)place(base, w.offset) = NAN;
            continue;
        }
        int err = store(&any, place(base, w.offset), o->name ? o->name : "an option", o->standard,
                        d);
        if (err)
            return err;
    }
    return KVF_OK;
}

void opt_finish(const struct opt *list, void *base)
{
    struct opt_walk w = opt_walk(list);
    for (const struct opt *o = opt_next(&w); o; o = opt_next(&w))
        if (o->type == OPT_LIST)
            opt_list_free(place(base, w.offset));
}

/* ---- parsing */

static int unknown(const struct opt *list, const char *shown, struct kvf_diag *d)
{
    bool is_long = shown[0] == '-' && shown[1] == '-';
    const char *near = is_long ? near_option(list, shown + 2) : NULL;
    return kvf_fail(d, KVF_E_ARG, "unknown option %s%s%s%s; -h lists the options", shown,
                    near ? " (did you mean --" : "", near ? near : "", near ? "?)" : "");
}

/* One option at argv[*i]; *i moves to the last word it used. */
static int parse_one(const struct opt *list, void *base, int argc, char **argv, int *i,
                     struct kvf_diag *d)
{
    const char *word = argv[*i], *value = NULL;
    const struct opt *o;
    size_t offset = 0;
    char shown[64];
    if (word[1] == '-') {
        size_t n = strcspn(word + 2, "=");
        o = find_long(list, word + 2, n, &offset);
        value = word[2 + n] ? word + 3 + n : NULL;
        snprintf(shown, sizeof shown, "%.*s", (int)(n + 2 < 60 ? n + 2 : 60), word);
    } else {
        o = find_short(list, word[1], &offset);
        value = word[2] ? word + 2 : NULL;
        snprintf(shown, sizeof shown, "-%c", word[1]);
    }
    if (!o)
        return unknown(list, shown, d);
    if (o->type == OPT_BARRED)
        return kvf_fail(d, KVF_E_ARG, "%s: %s", shown, o->help);
    if (o->type == OPT_FLAG && !value) {
        *(bool *)place(base, offset) = true;
        return KVF_OK;
    }
    if (!value && *i + 1 < argc)
        value = argv[++*i];
    if (!value)
        return kvf_fail(d, KVF_E_ARG, "%s needs a value (%s)", shown, o->arg);
    return store(o, place(base, offset), shown, value, d);
}

int opt_parse(const struct opt *list, void *base, int argc, char **argv, int *ret_operands,
              bool *ret_help, struct kvf_diag *d)
{
    int n = 0;
    bool only_operands = false;
    *ret_help = false;
    for (int i = 1; i < argc; i++) {
        const char *w = argv[i];
        if (only_operands || w[0] != '-' || !w[1]) {
            argv[1 + n++] = argv[i];
        } else if (strcmp(w, "--") == 0) {
            only_operands = true;
        } else if (strcmp(w, "-h") == 0 || strcmp(w, "--help") == 0) {
            *ret_help = true;
            return KVF_OK;
        } else {
            int err = parse_one(list, base, argc, argv, &i, d);
            if (err)
                return err;
        }
    }
    *ret_operands = n;
    return KVF_OK;
}

static int unknown_setting(const struct opt *list, const char *name, struct kvf_diag *d)
{
    struct buf known = {0};
    const char *near = near_option(list, name);
    struct opt_walk w = opt_walk(list);
    for (const struct opt *o = opt_next(&w); o; o = opt_next(&w))
        if (o->name)
            buf_printf(&known, "%s%s", known.len ? ", " : "", o->name);
    int err = kvf_fail(d, KVF_E_ARG, "unknown option '%s'%s%s%s; options are %s", name,
                       near ? " (did you mean '" : "", near ? near : "", near ? "'?)" : "",
                       known.data ? known.data : "none");
    buf_finish(&known);
    return err;
}

int opt_set(const struct opt *list, void *base, const char *name, const char *text,
            struct kvf_diag *d)
{
    size_t offset = 0;
    const struct opt *o = opt_find(list, name, &offset);
    if (!o)
        return unknown_setting(list, name, d);
    if (o->type != OPT_FLAG)
        return store(o, place(base, offset), name, text, d);
    if (strcmp(text, "yes") != 0 && strcmp(text, "no") != 0)
        return kvf_fail(d, KVF_E_ARG, "%s is yes or no, not '%s'", name, text);
    *(bool *)place(base, offset) = strcmp(text, "yes") == 0;
    return KVF_OK;
}

/* ---- showing */

static bool ranged(const struct opt *o)
{
    return (o->type == OPT_INT || o->type == OPT_REAL) && (o->min != 0 || o->max != 0);
}

/* A number this large means "any". */
static bool boundless(double max)
{
    return max >= 1e15;
}

static const char *otherwise(const struct opt *o)
{
    return o->absent ? o->absent : o->standard;
}

/* " (1 to 256; default: number of cores)"; empty if there is no text. */
static void show_values(const struct opt *o, struct buf *b)
{
    struct buf in = {0};
    if (o->type == OPT_WORD)
        list_words(o->words, &in);
    if (ranged(o) && boundless(o->max))
        buf_printf(&in, "from %.15g", o->min);
    else if (ranged(o))
        buf_printf(&in, "%.15g to %.15g", o->min, o->max);
    if (otherwise(o))
        buf_printf(&in, "%sdefault: %s", in.len ? "; " : "", otherwise(o));
    if (in.len)
        buf_printf(b, " (%s)", in.data);
    buf_finish(&in);
}

void opt_print(const struct opt *list, FILE *out)
{
    struct opt_walk w = opt_walk(list);
    for (const struct opt *o = opt_next(&w); o; o = opt_next(&w)) {
        char left[80];
        struct buf values = {0};
        if (o->type == OPT_BARRED)
            continue;
        show_values(o, &values);
        snprintf(left, sizeof left, "%c%c%s%s%s %s", o->short_name ? '-' : ' ',
                 o->short_name ? o->short_name : ' ', o->short_name && o->name ? ", " : "  ",
                 o->name ? "--" : "", o->name ? o->name : "", o->arg ? o->arg : "");
        fprintf(out, "  %-28s %s%s\n", left, o->help, values.data ? values.data : "");
        buf_finish(&values);
    }
}

static void put_option(const struct opt *o, const char *group, struct buf *b)
{
    static const char *const types[] = {
        [OPT_FLAG] = "flag", [OPT_STR] = "text",  [OPT_INT] = "whole",
        [OPT_REAL] = "real", [OPT_WORD] = "word", [OPT_LIST] = "list",
    };
    char short_name[2] = {o->short_name, 0};
    buf_char(b, '{');
    json_put_member_str(b, "name", o->name ? o->name : "");
    json_put_member_str(b, "type", types[o->type]);
    json_put_member_str(b, "help", o->help);
    if (o->short_name)
        json_put_member_str(b, "short", short_name);
    if (o->arg)
        json_put_member_str(b, "arg", o->arg);
    if (o->standard)
        json_put_member_str(b, "default", o->standard);
    if (o->absent)
        json_put_member_str(b, "absent", o->absent);
    if (ranged(o)) {
        json_put_member_num(b, "min", o->min);
        json_put_member_num(b, "max", o->max);
    }
    if (o->type == OPT_WORD) {
        json_put_key(b, "words");
        for (int i = 0; o->words[i]; i++) {
            buf_char(b, i ? ',' : '[');
            json_put_str(b, o->words[i], strlen(o->words[i]));
        }
        buf_char(b, ']');
    }
    if (group)
        json_put_member_str(b, "group", group);
    buf_char(b, '}');
}

void opt_json(const struct opt *list, struct buf *b)
{
    struct opt_walk w = opt_walk(list);
    char before = '[';
    for (const struct opt *o = opt_next(&w); o; o = opt_next(&w)) {
        if (o->type == OPT_BARRED)
            continue;
        buf_char(b, before);
        put_option(o, w.group, b);
        before = ',';
    }
    if (before == '[')
        buf_char(b, '[');
    buf_char(b, ']');
}
