#include "engine/experiment/eval_rows.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Cuts the next field off a line; NULL when there is none. */
static char *next_field(char **line)
{
    char *field = *line, *tab = field ? strchr(field, '\t') : NULL;
    *line = tab ? tab + 1 : NULL;
    if (tab)
        *tab = 0;
    return field;
}

bool eval_row_parse(char *line, struct eval_row *r)
{
    char *doc = next_field(&line), *hash = next_field(&line), *key = line;
    int used = 0;
    next_field(&line); /* method, options, budget */
    next_field(&line);
    char *budget = next_field(&line);
    if (!hash || !budget || !line)
        return false;
    for (char *c = key; c < budget; c++) /* they are one key */
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

void eval_row_put(const struct eval_row *r, struct buf *b)
{
    const struct eval_result *x = &r->r;
    buf_printf(b, "%d\t%016" PRIx64 "\t%s", r->doc, r->hash, r->key);
    buf_printf(b, "\t%.17g\t%.17g\t%.17g\t%.17g\t%.17g\t%.17g\t%" PRId64 "\t%.17g\n", x->nll, x->kl,
               x->agree, x->kv_end, x->kv_mean, x->kv_peak, x->triggers, x->right);
}
