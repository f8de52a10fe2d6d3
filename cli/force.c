/* force.c - reads the forced tokens and the plan of a run. */
#include "cli/force.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "engine/experiment/prompt.h"
#include "engine/model/gguf.h"

/* Returns true if a regular file begins with the magic of a trace (docs/reference/format.md). */
static bool is_trace(const char *path)
{
    static const char magic[8] = "\x89KVF\r\n\x1a\n";
    char start[8];
    struct stat s; /* only regular files, because bytes read from a pipe here would be lost */
    bool file = strcmp(path, "-") != 0 && stat(path, &s) == 0 && S_ISREG(s.st_mode);
    FILE *f = file ? fopen(path, "rb") : NULL;
    bool same = f && fread(start, 1, sizeof start, f) == sizeof start
                && memcmp(start, magic, sizeof magic) == 0;
    if (f)
        fclose(f);
    return same;
}

struct plan_model force_model(const struct engine *e)
{
    const struct model_config *c = &e->config;
    struct plan_model m = {c->n_layers, c->n_heads, c->n_kv_heads, c->vocab, c->n_ctx_max, "", ""};
    memcpy(m.hash, e->hash, sizeof m.hash);
    tokenizer_hash(e->tokenizer, m.tokenizer_hash);
    return m;
}

bool force_given(const struct force *f)
{
    return f && (f->file || f->plan_file);
}

int force_open(struct force *f, struct engine *e, struct kvf_diag *d)
{
    if (!force_given(f))
        return KVF_OK;
    struct plan_model m = force_model(e);
    int err = f->plan_file ? plan_open(f->plan_file, &m, &f->plan, d) : KVF_OK;
    m.most_tokens = 1 << 24; /* the run checks the limit itself */
    if (!err && f->file && is_trace(f->file))
        err = plan_open_tokens(f->file, &m, &f->tokens, d);
    else if (!err && f->file)
        err = prompt_read_ids(f->file, m.vocab, &f->text_ids, &f->n_text, d);
    return err;
}

void force_close(struct force *f)
{
    plan_close(f->plan);
    plan_close(f->tokens);
    mem_free(f->text_ids);
    mem_free(f->until);
    f->until = NULL;
    f->plan = f->tokens = NULL;
    f->text_ids = NULL;
    f->ids = NULL;
    f->roles = NULL;
    f->n_ids = 0;
    f->n_text = 0;
    f->scored = false;
}

static bool needs_evictions(const struct method *m)
{
    return m->admission->reason == KVF_REASON_PLAN;
}

static bool needs_mass(const struct method *m)
{
    return m->score && m->score->needs_mass;
}

/* Checks that the masses come from full attention, because evicted entries receive no mass. */
static int check_masses(const struct force *f, const struct method *m, struct kvf_diag *d)
{
    const struct plan *p = f->plan;
    bool full = strcmp(p->method, "full") == 0;
    size_t n = (size_t)p->n_layers * (size_t)p->n_kv_heads * (size_t)p->n_tokens;
    if (p->evict_step) {
        full = true;
        for (size_t i = 0; full && i < n; i++)
            full = p->evict_step[i] == KVF_ALIVE;
    }
    if (!full)
        return kvf_fail(
            d, KVF_E_ARG,
            "method %s needs the masses of a run without evictions, and %s was made from '%s'",
            m->name, f->plan_file, p->method);
    bool same = !f->text_ids;
    if (f->tokens && p->ids) {
        int32_t k = f->tokens->n_tokens < p->n_tokens ? f->tokens->n_tokens : p->n_tokens;
        same = memcmp(f->tokens->ids, p->ids, (size_t)k * sizeof *p->ids) == 0;
    }
    return same ? KVF_OK
                : kvf_fail(d, KVF_E_ARG,
                           "method %s needs the masses of the same "
                           "tokens, and --force gives others than %s",
                           m->name, f->plan_file);
}

static int check_row(const struct force *f, const struct method *m, struct kvf_diag *d)
{
    if (needs_evictions(m) && !f->plan->evict_step)
        return kvf_fail(d, KVF_E_ARG, "%s has no evictions; choose another --method", f->plan_file);
    if (needs_mass(m) && f->plan->mass)
        return check_masses(f, m, d);
    return KVF_OK;
}

/* Sets the parameters of the run from the plan: the prompt's chunk size, the positions, and
 * whether query heads have their own caches. */
static int take_run(const struct force *f, const struct model_config *m, struct methods *r,
                    struct kvf_diag *d)
{
    const struct plan *p = f->plan;
    bool per_query_head = p->n_kv_heads != m->n_kv_heads;
    r->params.chunk = p->chunk;
    r->params.positions = p->by_rank ? POSITIONS_CACHE : POSITIONS_ORIGINAL;
    if (per_query_head)
        r->params.group = GROUP_NONE;
    for (int i = 0; i < r->override_text.n; i++) {
        const struct row_override *o = &r->override[i];
        if (o->params.chunk != r->params.chunk || o->params.positions != r->params.positions
            || method_per_query_head(&o->row, &o->params) != per_query_head)
            return kvf_fail(d, KVF_E_ARG,
                            "--override '%s': the run of %s had other positions, "
                            "chunk or group=none",
                            r->override_text.item[i], f->plan_file);
    }
    return KVF_OK;
}

int force_inputs(struct force *f, const struct model_config *m, struct methods *r,
                 struct kvf_diag *d)
{
    const struct plan *p = f->plan;
    if (!p)
        return KVF_OK;
    int err = check_row(f, &r->row, d);
    for (int i = 0; !err && i < r->override_text.n; i++)
        err = check_row(f, &r->override[i].row, d);
    if (err)
        return err;
    size_t n = (size_t)p->n_layers * (size_t)p->n_kv_heads * (size_t)p->n_tokens;
    f->until = p->evict_step ? MEM_NEW(int32_t, n) : NULL;
    if (p->evict_step && !f->until)
        return KVF_E_NOMEM;
    for (size_t i = 0; f->until && i < n; i++)
        f->until[i] = p->evict_step[i] == KVF_ALIVE ? NEVER_EXPIRES : (int32_t)p->evict_step[i];
    r->inputs.plan_until = f->until;
    r->inputs.plan_mass = p->mass;
    r->inputs.plan_len = p->n_tokens;
    if (needs_evictions(&r->row))
        return take_run(f, m, r, d);
    bool any = false;
    for (int i = 0; i < r->override_text.n; i++)
        any = any || needs_evictions(&r->override[i].row);
    if (any && session_cache_heads(m, &r->row, &r->params) != p->n_kv_heads)
        return kvf_fail(d, KVF_E_ARG, "--override: the plan %s and this run differ in group=none",
                        f->plan_file);
    return KVF_OK;
}

/* Returns the trace or plan with the tokens to force. */
static const struct plan *source(const struct force *f)
{
    if (f->tokens)
        return f->tokens;
    return f->plan && f->plan->ids ? f->plan : NULL;
}

int force_prompt(const struct force *f, const int32_t **ret_ids, int *ret_n, struct kvf_diag *d)
{
    const struct plan *p = source(f);
    if (!p || p->n_prompt < 1)
        return kvf_fail(
            d, KVF_E_ARG,
            "no prompt, and %s has none: give it with -p TEXT, -f FILE, --chat FILE or --ids FILE",
            f->file ? f->file : f->plan_file);
    *ret_ids = p->ids;
    *ret_n = p->n_prompt;
    return KVF_OK;
}

int force_question(const struct force *f)
{
    const struct plan *p = source(f);
    int n = 0;
    while (p && p->roles && p->n_prompt + n < p->n_tokens
           && p->roles[p->n_prompt + n] == KVF_ROLE_QUESTION)
        n++;
    return n;
}

int force_follow(struct force *f, const int32_t *prompt, int n, struct kvf_diag *d)
{
    const struct plan *p = source(f);
    const char *path = f->tokens ? f->file : f->plan_file;
    if (f->text_ids) {
        f->ids = f->text_ids;
        f->n_ids = f->n_text;
        return KVF_OK;
    }
    if (!p)
        return KVF_OK;
    for (int i = 0; i < n && i < p->n_tokens; i++)
        if (prompt[i] != p->ids[i])
            return kvf_fail(d, KVF_E_ARG,
                            "%s does not begin with this prompt: its token %d is "
                            "%d, the prompt's %d; without a prompt, its own is taken",
                            path, i, p->ids[i], prompt[i]);
    if (n > p->n_tokens)
        return kvf_fail(d, KVF_E_ARG,
                        "%s does not begin with this prompt: it has %d tokens, the "
                        "prompt %d",
                        path, p->n_tokens, n);
    f->ids = p->ids + n;
    f->roles = p->roles ? p->roles + n : NULL;
    f->n_ids = p->n_tokens - n;
    return KVF_OK;
}

const uint8_t *force_roles(const struct force *f)
{
    const struct plan *p = f->text_ids ? NULL : source(f);
    return p ? p->roles : NULL;
}
