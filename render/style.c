#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/opt.h"
#include "render/style.h"

enum { PIECE = 64, FAR = 99 }; /* bytes of a key and of a value */

/* ---- words that are near */

/* Letters that must be put in, taken out or replaced to make one word of the other. */
static int distance(const char *a, const char *b)
{
    int row[PIECE]; /* of the first i letters of a and the first j of b */
    size_t n = strlen(a), m = strlen(b);
    if (n >= PIECE || m >= PIECE)
        return FAR;
    for (size_t j = 0; j <= m; j++)
        row[j] = (int)j;
    for (size_t i = 1; i <= n; i++) {
        int corner = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= m; j++) {
            int above = row[j], best = corner + (a[i - 1] != b[j - 1]);
            best = above + 1 < best ? above + 1 : best;
            row[j] = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
            corner = above;
        }
    }
    return row[m];
}

/* Keeps `word` in *near when it is nearer to what was typed than *best; a third of the letters
 * may differ. */
static void try_word(const char *typed, const char *word, int *best, const char **near)
{
    int far = distance(typed, word), most = ((int)strlen(typed) + 2) / 3;
    if (far < *best && far <= most) {
        *best = far;
        *near = word;
    }
}

/* ---- what a figure knows */

/* "by=all|head", "top=N" */
static void show(const struct style_key *k, struct buf *out)
{
    buf_printf(out, "%s=", k->name);
    for (int i = 0; k->words && k->words[i]; i++)
        buf_printf(out, "%s%s", i ? "|" : "", k->words[i]);
    if (!k->words)
        buf_str(out, k->arg);
    if (k->type == KEY_COUNT || k->type == KEY_REAL)
        buf_printf(out, " (%.15g to %.15g)", k->min, k->max);
}

static int refuse_value(const char *figure, const struct style_key *k, const char *value,
                        struct kvf_diag *d)
{
    struct buf known = {0};
    const char *near = NULL;
    int best = FAR;
    show(k, &known);
    for (int i = 0; k->words && k->words[i]; i++)
        try_word(value, k->words[i], &best, &near);
    int err = kvf_fail(d, KVF_E_ARG, "--style: %s knows %s, not %s=%s%s%s%s", figure,
                       known.err ? "other values" : known.data, k->name, value,
                       near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
    buf_finish(&known);
    return err;
}

static int refuse_key(const char *figure, const struct style_key *keys, const char *name,
                      struct kvf_diag *d)
{
    struct buf known = {0};
    const char *near = NULL;
    int best = FAR;
    for (const struct style_key *k = keys; k && k->type != KEY_END; k++) {
        buf_str(&known, k == keys ? "; it knows " : ", ");
        show(k, &known);
        try_word(name, k->name, &best, &near);
    }
    int err = kvf_fail(d, KVF_E_ARG, "--style: %s has no key '%s'%s%s%s%s", figure, name,
                       near ? ", did you mean '" : "", near ? near : "", near ? "'?" : "",
                       known.data ? known.data : "; it has none");
    buf_finish(&known);
    return err;
}

/* ---- reading */

static bool take_word(const struct style_key *k, const char *value, int *ret)
{
    for (int i = 0; k->words[i]; i++)
        if (strcmp(k->words[i], value) == 0) {
            *ret = i;
            return true;
        }
    return false;
}

/* Puts a value where the key says.  False: it is none of the key's. */
static bool take(const struct style_key *k, const char *value, void *ret)
{
    void *at = (char *)ret + k->offset;
    int64_t n;
    double x;
    switch (k->type) {
    case KEY_WORD:
        return take_word(k, value, at);
    case KEY_COUNT:
        if (!opt_int(value, &n) || (double)n < k->min || (double)n > k->max)
            return false;
        *(int64_t *)at = n;
        return true;
    case KEY_REAL:
        if (!opt_real(value, &x) || x < k->min || x > k->max)
            return false;
        *(double *)at = x;
        return true;
    default:
        *(const char **)at = value;
        return *value != 0;
    }
}

/* The pairs of option as "key\0value\0key\0value\0", so that values can be borrowed. */
static int cut(const char *option, struct buf *text, struct kvf_diag *d)
{
    char name[PIECE], value[PIECE];
    int more = 0;
    while (option) {
        more = opt_pair(&option, name, value, PIECE);
        if (more != 1)
            break;
        buf_add(text, name, strlen(name) + 1);
        buf_add(text, value, strlen(value) + 1);
    }
    return more ? kvf_fail(d, KVF_E_ARG, "--style needs key=value pairs") : text->err;
}

int style_read(const char *figure, const struct style_key *keys, const char *option, void *ret,
               struct buf *text, struct kvf_diag *d)
{
    for (const struct style_key *k = keys; k && k->type != KEY_END; k++)
        if (k->standard)
            take(k, k->standard, ret);
    int err = cut(option, text, d);
    if (err || !text->len)
        return err;
    const char *end = text->data + text->len;
    for (const char *name = text->data, *value; name < end; name = value + strlen(value) + 1) {
        const struct style_key *k = keys;
        value = name + strlen(name) + 1;
        while (k && k->type != KEY_END && strcmp(k->name, name) != 0)
            k++;
        if (!k || k->type == KEY_END)
            return refuse_key(figure, keys, name, d);
        if (!take(k, value, ret))
            return refuse_value(figure, k, value, d);
    }
    return KVF_OK;
}

int style_steps(const char *value, int64_t *from, int64_t *to, struct kvf_diag *d)
{
    char first[PIECE];
    int64_t a = 0, b = INT64_MAX;
    size_t colon = value ? strcspn(value, ":") : 0;
    if (!value)
        return KVF_OK;
    snprintf(first, sizeof first, "%.*s", (int)colon, value);
    if (!value[colon] || !opt_int(first, &a)
        || (value[colon + 1] && !opt_int(value + colon + 1, &b)))
        return kvf_fail(d, KVF_E_ARG, "--style: steps=C:D, two numbers, or C: to the end");
    *from = a;
    *to = b;
    return KVF_OK;
}

/* ---- saying */

static void key_json(const struct style_key *k, struct buf *out)
{
    static const char *const types[] = {"", "word", "text", "count", "real"};
    buf_char(out, '{');
    json_put_member_str(out, "name", k->name);
    json_put_member_str(out, "type", types[k->type]);
    if (k->arg)
        json_put_member_str(out, "arg", k->arg);
    if (k->words) {
        json_put_key(out, "words");
        for (int i = 0; k->words[i]; i++) {
            buf_char(out, i ? ',' : '[');
            json_put_str(out, k->words[i], strlen(k->words[i]));
        }
        buf_char(out, ']');
    }
    if (k->standard)
        json_put_member_str(out, "default", k->standard);
    if (k->type == KEY_COUNT || k->type == KEY_REAL) {
        json_put_member_num(out, "min", k->min);
        json_put_member_num(out, "max", k->max);
    }
    json_put_member_str(out, "help", k->help);
    buf_char(out, '}');
}

void style_json(const struct style_key *keys, struct buf *out)
{
    buf_char(out, '[');
    for (const struct style_key *k = keys; k && k->type != KEY_END; k++) {
        if (k != keys)
            buf_char(out, ',');
        key_json(k, out);
    }
    buf_char(out, ']');
}
