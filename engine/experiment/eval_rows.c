/* eval_rows.c - reads and writes the lines of a result file. */
#include "engine/experiment/eval_rows.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/checksum.h"

size_t eval_head_length(const char *text, size_t n)
{
    size_t at = 0, k = strlen(EVAL_BEGINNING);
    bool more = n >= k && memcmp(text, EVAL_BEGINNING, k) == 0;
    while (more) {
        const char *end = memchr(text + at, '\n', n - at);
        if (!end)
            return 0;
        more = text[at] == '#';
        at = (size_t)(end - text) + 1;
    }
    return at;
}

void eval_head_finish(struct buf *head)
{
    char text[CHECKSUM_DIGITS + 1];
    checksum_text(head->err ? 0 : checksum(0, head->data, head->len), text);
    buf_printf(head, EVAL_CHECK "%s\n" EVAL_COLUMNS, text);
}

int eval_head_check(const char *path, const char *text, size_t n, uint64_t *ret_seed,
                    struct kvf_diag *d)
{
    size_t columns = strlen(EVAL_COLUMNS), end = strlen(EVAL_CHECK) + CHECKSUM_DIGITS + 1;
    if (n < end + columns || memcmp(text + n - columns, EVAL_COLUMNS, columns) != 0)
        return kvf_fail(d, KVF_E_FORMAT,
                        "%s: the results have other columns: another version of kvfate wrote them "
                        "(older ones have no checksums), or the file is damaged; give another file "
                        "to --state, or remove this one",
                        path);
    size_t at = n - columns - end;
    char line[sizeof EVAL_CHECK + CHECKSUM_DIGITS + 1], digits[CHECKSUM_DIGITS + 1];
    checksum_text(checksum(0, text, at), digits);
    snprintf(line, sizeof line, EVAL_CHECK "%s\n", digits);
    if (memcmp(text + at, line, end) != 0)
        return kvf_fail(d, KVF_E_FORMAT,
                        "%s: the head of the results is damaged (its checksum differs); give "
                        "another file to --state, or remove this one",
                        path);
    *ret_seed = checksum(0, text, n);
    return KVF_OK;
}

int eval_row_damaged(const char *path, size_t number, struct kvf_diag *d)
{
    return kvf_fail(d, KVF_E_FORMAT,
                    "%s: line %zu is damaged (its checksum differs); delete this line, and its "
                    "result is computed again",
                    path, number);
}

/* Splits the next field off a line; NULL if there is none. */
static char *next_field(char **line)
{
    char *field = *line, *tab = field ? strchr(field, '\t') : NULL;
    *line = tab ? tab + 1 : NULL;
    if (tab)
        *tab = 0;
    return field;
}

/* Removes the checksum at the end of a line, and returns true if it matches the rest. */
static bool cut_checksum(char *line, uint64_t seed)
{
    char *tab = strrchr(line, '\t'), digits[CHECKSUM_DIGITS + 1];
    if (!tab)
        return false;
    checksum_text(checksum(seed, line, (size_t)(tab - line)), digits);
    *tab = 0;
    return strcmp(tab + 1, digits) == 0;
}

bool eval_row_parse(char *line, uint64_t seed, struct eval_row *r)
{
    if (!cut_checksum(line, seed))
        return false;
    char *doc = next_field(&line), *hash = next_field(&line), *key = line;
    int used = 0;
    next_field(&line); /* method, options, budget */
    next_field(&line);
    char *budget = next_field(&line);
    if (!hash || !budget || !line)
        return false;
    for (char *c = key; c < budget; c++) /* restore the tabs of the key */
        if (*c == 0)
            *c = '\t';
    r->key = key;
    return sscanf(doc, "%d%n", &r->doc, &used) == 1 && !doc[used]
           && sscanf(hash, "%" SCNx64 "%n", &r->hash, &used) == 1 && !hash[used]
           && sscanf(line, "%lf\t%lf\t%lf\t%lf\t%lf\t%lf\t%" SCNd64 "\t%lf%n", &r->r.nll, &r->r.kl,
                     &r->r.agree, &r->r.kv_end, &r->r.kv_mean, &r->r.kv_peak, &r->r.triggers,
                     &r->r.right, &used)
                  == 8
           && !line[used];
}

void eval_row_put(const struct eval_row *r, uint64_t seed, struct buf *b)
{
    char digits[CHECKSUM_DIGITS + 1];
    size_t at = b->len;
    const struct eval_result *x = &r->r;
    buf_printf(b, "%d\t%016" PRIx64 "\t%s", r->doc, r->hash, r->key);
    buf_printf(b, "\t%.17g\t%.17g\t%.17g\t%.17g\t%.17g\t%.17g\t%" PRId64 "\t%.17g", x->nll, x->kl,
               x->agree, x->kv_end, x->kv_mean, x->kv_peak, x->triggers, x->right);
    if (b->err)
        return;
    checksum_text(checksum(seed, b->data + at, b->len - at), digits);
    buf_printf(b, "\t%s\n", digits);
}
