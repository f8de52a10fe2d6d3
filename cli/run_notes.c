/* run_notes.c - prints notes when the options of a run may mislead. */
#include "cli/run_notes.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "engine/gate/head_table.h"
#include "engine/probe/probes.h"

/* Prints the range of entries that a query sees if it is not the budget at every step. An eviction
 * frees every - 1 entries in addition to the place of the new entry. It happens when the cache
 * exceeds the budget by more than `slack` entries, or up to stride - 1 tokens later. With
 * order=after it follows the query, which then sees one entry more. */
static void note_budget(const struct method *m, const struct method_params *p, int most)
{
    int after = p->order == ORDER_AFTER, least = p->budget - p->every + 1 + after;
    const struct {
        const char *key;
        int value, none;
    } late[] = {{"every", p->every, 1}, {"slack", p->slack, 0}, {"stride", p->stride, 0}};
    char has[96] = "", would[64] = "";
    for (size_t i = 0; i < sizeof late / sizeof *late; i++) {
        size_t n = strlen(has), w = strlen(would);
        if (late[i].value <= late[i].none)
            continue;
        snprintf(has + n, sizeof has - n, "%s%s=%d", n ? ", " : "", late[i].key, late[i].value);
        snprintf(would + w, sizeof would - w, "%s%s=%d", w ? "," : "", late[i].key, late[i].none);
    }
    int largest = p->budget + p->slack + after + (p->stride > 1 ? p->stride - 1 : 0);
    if (!m->score || p->budget == 0 || !has[0] || largest >= most)
        return;
    fprintf(stderr,
            "note: %s has %s: after the prompt a query sees %d to %d entries of a head%s, and not "
            "the budget of %d at every step; %s would be that\n",
            m->name, has, least, largest,
            m->allocation->pool == POOL_HEAD && !m->allocation->heads ? "" : " on average",
            p->budget, would);
}

/* Prints the sum and the range of the budgets of --head-budgets. */
static void note_head_budgets(const struct runner *r)
{
    struct head_budget_range x;
    int H = r->methods.cache_heads;
    char kind = H == r->engine->config.n_kv_heads ? 'K' : 'H';
    if (methods_head_budgets(&r->methods, &r->engine->config, r->prompt.n_ids, &x) || x.n == 0)
        return;
    fprintf(stderr, "note: --head-budgets %s (%s): %d heads", r->methods.head_budgets,
            head_table_form_name(r->methods.head_table->form), x.n);
    if (x.free)
        fprintf(stderr, ", %d of them without a limit", x.free);
    if (x.n > x.free)
        fprintf(stderr,
                ", %lld entries in all, %.2f per head on average, at least %d (L%d%c%d), at most "
                "%d (L%d%c%d)",
                (long long)x.sum, (double)x.sum / (x.n - x.free), x.low, x.low_at / H, kind,
                x.low_at % H, x.high, x.high_at / H, kind, x.high_at % H);
    fprintf(stderr, "\n");
}

void note_budgets(const struct runner *r)
{
    const struct methods *m = &r->methods;
    note_budget(&m->row, &m->params, runner_cap(r));
    for (int i = 0; i < m->override_text.n; i++)
        note_budget(&m->override[i].row, &m->override[i].params, runner_cap(r));
    note_head_budgets(r);
}

static void note_left_out(const char *probes, unsigned set, const struct probe_config *cfg)
{
    struct kvf_diag d = {""};
    unsigned full = 0;
    double bytes, recorded = probes_bytes_per_token(set, cfg);
    const char *gap = "not recorded, in bytes per token: ";
    if (strcmp(probes, "paper") != 0 || probes_parse("full", &full, &d) != KVF_OK)
        return;
    for (int i = 0; probe_table[i]; i++) {
        bytes = probes_bytes_per_token(set | (full & 1u << i), cfg) - recorded;
        if (!(bytes > 0))
            continue;
        fprintf(stderr, "%s%s %.0f", gap, probe_table[i]->name, bytes);
        gap = ", ";
    }
    if (gap[0] == ',')
        fprintf(stderr, "; --probes paper,NAME adds one, --probes full adds all "
                        "(docs/reference/probes.md lists their users and their time)\n");
}

void note_recorded(const char *probes, const char *shadow, unsigned set,
                   const struct probe_config *cfg)
{
    fprintf(stderr, "recording --probes %s%s%s: %.0f bytes per token before compression\n", probes,
            shadow ? " --shadow " : "", shadow ? shadow : "", probes_bytes_per_token(set, cfg));
    note_left_out(probes, set, cfg);
}

void note_watch(const struct watch *w, int head_dim)
{
    if (w->n_pairs)
        fprintf(stderr,
                "watching %d pairs of a query head and a token, of at most %d: %d bytes "
                "per step\n",
                w->n_pairs, WATCH_MAX_PAIRS, w->n_pairs * 4);
    if (w->n_queries)
        fprintf(stderr,
                "watching queries, heads: %d, %s RoPE: %d numbers per step, of at most "
                "%d\n",
                w->n_queries, w->turned ? "after" : "before", w->n_queries * head_dim,
                WATCH_MAX_NUMBERS);
}

/* Prints the peak of the heads of one method if it exceeds the budget. */
static void note_row_peak(const struct method *m, const struct method_params *p, const char *text,
                          const unsigned char *heads, const struct session *s)
{
    int peak = session_peak(s, heads), budget = p->budget;
    if (budget && m->score && m->allocation->pool == POOL_HEAD && peak > budget
        && strcmp(m->allocation->name, "uniform") == 0)
        fprintf(stderr,
                "after the prompt a query saw up to %d entries of a head, %d over the "
                "budget, as %s asks for\n",
                peak, peak - budget, text);
}

void note_peak(const struct runner *r, const struct session *s)
{
    const struct methods *m = &r->methods;
    size_t n = (size_t)r->engine->config.n_layers * (size_t)m->cache_heads;
    unsigned char *heads = MEM_NEW(unsigned char, n);
    for (int k = -1; heads && k < m->override_text.n; k++) {
        for (size_t i = 0; i < n; i++)
            heads[i] = methods_decider(m, (int)i) == k;
        if (k < 0)
            note_row_peak(&m->row, &m->params, m->method, heads, s);
        else
            note_row_peak(&m->override[k].row, &m->override[k].params,
                          strchr(m->override_text.item[k], '=') + 1, heads, s);
    }
    mem_free(heads);
}

void note_context(const struct runner *r, int generated)
{
    fprintf(stderr,
            "note: the answer stops after %d of %lld tokens because prompt and answer fill the "
            "context of %d tokens%s\n",
            generated, (long long)r->n_predict, runner_cap(r),
            r->context == runner_cap(r) ? " (-c)" : "");
}

void note_effect(const struct runner *r, const struct session *s)
{
    const struct methods *m = &r->methods;
    int fed = session_length(s);
    int64_t all = (int64_t)fed * m->cache_heads * r->engine->config.n_layers;
    if (!methods_evict(m) || fed < r->prompt.n_ids)
        return;
    if (session_cache_stats(s).entries == all && session_read_all(s))
        fprintf(stderr,
                "note: no entry was evicted%s: the %d tokens of the run fit into the budget of %s, "
                "so that the run equals --method full\n",
                methods_read_pages(m) ? " or left unread" : "", fed, m->row.name);
    else if (fed == r->prompt.n_ids && !methods_cut_prompt(m))
        fprintf(stderr, "note: no query followed the evictions after the prompt: with -n 1 no "
                        "token is fed back; use -n 2 or more\n");
    else if (methods_read_pages(m) && session_read_all(s) && fed > r->prompt.n_ids)
        fprintf(stderr, "note: all pages were read: each query read all entries of the cache, so "
                        "the choice of pages had no effect\n");
}
