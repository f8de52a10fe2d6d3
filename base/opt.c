#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/opt.h"

bool opt_int(const char *s, int64_t *ret)
{
    char *end;
    errno = 0;
    long long v = strtoll(s, &end, 10);
    if (end == s || errno)
        return false;
    int64_t scale = *end == 'k' || *end == 'K' ? 1024 : *end == 'M' ? 1024 * 1024 : 1;
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

static const struct opt *find_long(const struct opt *list, const char *name, size_t n)
{
    for (; list->type != OPT_END; list++)
        if (list->name && strlen(list->name) == n && memcmp(list->name, name, n) == 0)
            return list;
    return NULL;
}

static const struct opt *find_short(const struct opt *list, char c)
{
    for (; list->type != OPT_END; list++)
        if (list->short_name == c)
            return list;
    return NULL;
}

static int out_of_range(const struct opt *o, const char *shown, struct kvf_diag *d)
{
    return kvf_fail(d, KVF_E_ARG, "%s must be between %.15g and %.15g", shown, o->min, o->max);
}

static int store(const struct opt *o, const char *shown, const char *v, struct kvf_diag *d)
{
    bool ranged = o->min != 0 || o->max != 0;
    if (o->type == OPT_STR) {
        *(const char **)o->value = v;
    } else if (o->type == OPT_INT) {
        int64_t n;
        if (!opt_int(v, &n))
            return kvf_fail(d, KVF_E_ARG, "%s needs a whole number, not '%s'", shown, v);
        if (ranged && ((double)n < o->min || (double)n > o->max))
            return out_of_range(o, shown, d);
        *(int64_t *)o->value = n;
    } else if (o->type == OPT_REAL) {
        double x;
        if (!opt_real(v, &x))
            return kvf_fail(d, KVF_E_ARG, "%s needs a number, not '%s'", shown, v);
        if (ranged && (x < o->min || x > o->max))
            return out_of_range(o, shown, d);
        *(double *)o->value = x;
    } else {
        struct opt_list *l = o->value;
        if (l->n == OPT_LIST_MAX)
            return kvf_fail(d, KVF_E_ARG, "%s is given more than %d times", shown, OPT_LIST_MAX);
        l->item[l->n++] = v;
    }
    return KVF_OK;
}

/* One option at argv[*i]; *i moves to the last word it used. */
static int parse_one(const struct opt *list, int argc, char **argv, int *i, struct kvf_diag *d)
{
    const char *word = argv[*i], *value = NULL;
    const struct opt *o;
    char shown[64];
    if (word[1] == '-') {
        size_t n = strcspn(word + 2, "=");
        o = find_long(list, word + 2, n);
        value = word[2 + n] ? word + 3 + n : NULL;
        snprintf(shown, sizeof shown, "%.*s", (int)(n + 2 < 60 ? n + 2 : 60), word);
    } else {
        o = find_short(list, word[1]);
        value = word[2] ? word + 2 : NULL;
        snprintf(shown, sizeof shown, "-%c", word[1]);
    }
    if (!o)
        return kvf_fail(d, KVF_E_ARG, "unknown option %s; -h lists the options", shown);
    if (o->type == OPT_FLAG) {
        if (value)
            return kvf_fail(d, KVF_E_ARG, "%s takes no value", shown);
        *(bool *)o->value = true;
        return KVF_OK;
    }
    if (!value && *i + 1 < argc)
        value = argv[++*i];
    if (!value)
        return kvf_fail(d, KVF_E_ARG, "%s needs a value (%s)", shown, o->arg);
    return store(o, shown, value, d);
}

int opt_parse(const struct opt *list, int argc, char **argv, int *ret_operands, bool *ret_help,
              struct kvf_diag *d)
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
            int err = parse_one(list, argc, argv, &i, d);
            if (err)
                return err;
        }
    }
    *ret_operands = n;
    return KVF_OK;
}

void opt_print(const struct opt *list, FILE *out)
{
    for (; list->type != OPT_END; list++) {
        char left[80];
        snprintf(left, sizeof left, "%c%c%s%s%s %s", list->short_name ? '-' : ' ',
                 list->short_name ? list->short_name : ' ',
                 list->short_name && list->name ? ", " : "  ", list->name ? "--" : "",
                 list->name ? list->name : "", list->arg ? list->arg : "");
        fprintf(out, "  %-28s %s\n", left, list->help);
    }
}
