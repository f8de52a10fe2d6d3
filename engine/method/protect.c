/* protect.c - tokens that a method never evicts (`protect=`): parses the option, finds the tokens
 * in a prompt, and marks them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/opt.h"
#include "engine/method/state.h"

enum protect_kind { PROTECT_PROMPT, PROTECT_SYSTEM, PROTECT_SINKS, PROTECT_SPANS };

/* One term of the option. */
struct term {
    enum protect_kind kind;
    int n;         /* of sinks:N */
    char name[24]; /* of spans:NAME; "": all spans */
};

static const struct {
    const char *word;
    enum protect_kind kind;
} kinds[] = {{"prompt", PROTECT_PROMPT},
             {"system", PROTECT_SYSTEM},
             {"sinks", PROTECT_SINKS},
             {"spans", PROTECT_SPANS}};

/* Reads the term at *text and sets *text to the next one.  Returns false if it is malformed. */
static bool next_term(const char **text, struct term *ret)
{
    size_t len = strcspn(*text, "+"), word = strcspn(*text, "+:");
    size_t more = word < len ? len - word - 1 : 0, i = 0, n = sizeof kinds / sizeof *kinds;
    int64_t count = 0;
    while (i < n && (strlen(kinds[i].word) != word || memcmp(kinds[i].word, *text, word) != 0))
        i++;
    if (i == n || more >= sizeof ret->name)
        return false;
    *ret = (struct term){.kind = kinds[i].kind};
    memcpy(ret->name, *text + len - more, more);
    *text += len;
    if (**text == '+' && !*++*text)
        return false;
    if (ret->kind == PROTECT_SINKS) {
        bool good = opt_int(ret->name, &count) && count >= 1 && count <= 1 << 24;
        ret->n = (int)count;
        return good;
    }
    return ret->kind == PROTECT_SPANS ? more > 0 || word == len : word == len;
}

bool protect_valid(const char *text)
{
    struct term t;
    if (!*text)
        return false;
    while (*text)
        if (!next_term(&text, &t))
            return false;
    return true;
}

/* Marks the positions [first, end). */
static void mark(unsigned char *mask, int first, int end)
{
    if (end > first)
        memset(mask + first, 1, (size_t)(end - first));
}

/* Returns true if a term names a range of the prompt. */
static bool names(const struct term *t, const struct method_range *r)
{
    if (t->kind == PROTECT_SYSTEM)
        return !r->name;
    return r->name && (!t->name[0] || strcmp(t->name, r->name) == 0);
}

/* Marks the tokens of one term.  Returns false if the prompt has none. */
static bool mark_term(const struct term *t, const struct method_inputs *in, unsigned char *mask)
{
    bool some = false;
    if (t->kind == PROTECT_SINKS)
        mark(mask, 0, t->n);
    if (t->kind == PROTECT_PROMPT)
        mark(mask, 0, in->prompt);
    if (t->kind == PROTECT_SINKS || t->kind == PROTECT_PROMPT)
        return true;
    for (int i = 0; i < in->n_ranges; i++)
        if (names(t, &in->ranges[i])) {
            mark(mask, in->ranges[i].first, in->ranges[i].end);
            some = true;
        }
    return some;
}

static int no_tokens(const struct method *m, const struct term *t, const struct method_inputs *in,
                     struct kvf_diag *d)
{
    bool spans = false;
    for (int i = 0; i < in->n_ranges; i++)
        spans |= in->ranges[i].name != NULL;
    if (t->kind == PROTECT_SYSTEM)
        return kvf_fail(d, KVF_E_ARG,
                        "method %s: protect=system: the prompt has no system message; text that "
                        "the chat template adds is not a message",
                        m->name);
    if (!spans)
        return kvf_fail(
            d, KVF_E_ARG,
            "method %s: protect=spans needs the spans of a prompt (kvfate run --spans FILE)",
            m->name);
    return kvf_fail(d, KVF_E_ARG, "method %s: protect=spans:%s: --spans has no span of this name",
                    m->name, t->name);
}

/* Makes the mask of all terms: [*ret_n], 1 for a protected position. */
static int make_mask(const struct method *m, const struct method_params *p,
                     const struct method_inputs *in, unsigned char **ret_mask, int *ret_n,
                     struct kvf_diag *d)
{
    struct term t;
    int n = in->prompt, err = KVF_OK;
    for (const char *s = p->protect; *s && next_term(&s, &t);)
        n = t.n > n ? t.n : n;
    unsigned char *mask = MEM_NEW(unsigned char, (size_t)n + 1);
    if (!mask)
        return KVF_E_NOMEM;
    for (const char *s = p->protect; !err && *s && next_term(&s, &t);)
        if (!mark_term(&t, in, mask))
            err = no_tokens(m, &t, in, d);
    if (err) {
        mem_free(mask);
        return err;
    }
    *ret_mask = mask;
    *ret_n = n;
    return KVF_OK;
}

int method_protect(const struct method *m, struct method_params *p, const struct method_inputs *in,
                   struct kvf_diag *d)
{
    unsigned char *mask = NULL;
    int n = 0;
    if (!p->protect[0])
        return KVF_OK;
    int err = make_mask(m, p, in, &mask, &n, d);
    if (err)
        return err;
    p->n_protected = 0;
    for (int i = p->sinks; i < n; i++)
        p->n_protected += mask[i];
    mem_free(mask);
    return method_fit(m, p, d);
}

int protect_create(struct method_state *s)
{
    struct kvf_diag unused;
    if (!s->params.protect[0])
        return KVF_OK;
    return make_mask(s->method, &s->params, &s->inputs, &s->protect, &s->n_protect, &unused);
}
