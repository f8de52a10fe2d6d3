/* auto_probes.c - chooses the probes of a default run (auto_probes.h). */
#include "cli/auto_probes.h"

#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "engine/probe/probes.h"
#include "engine/probe/recorder.h"
#include "engine/probe/watch.h"

/* Dilution of all queries costs more than the run without probes: about SAMPLE queries are enough
 * for means and curves. Beyond LONG tokens the arrays of the additional probes need too much
 * memory. */
enum { SAMPLE = 128, LONG = 16384, QUARTERS = 4, LAYERS = 3 };

static void drop(unsigned *set, const struct probe *p)
{
    for (int i = 0; probe_table[i]; i++)
        if (probe_table[i] == p)
            *set &= ~(1u << i);
}

static bool has(unsigned set, const struct probe *p)
{
    unsigned rest = set;
    drop(&rest, p);
    return rest != set;
}

/* Writes head 0 of the first, the middle and the last layer: "L0H0,L15H0,L29H0". */
static void write_heads(int layers, char *out, size_t cap)
{
    const int layer[LAYERS] = {0, layers / 2, layers - 1};
    size_t n = 0;
    for (int i = 0; i < LAYERS; i++)
        if (i == 0 || layer[i] > layer[i - 1])
            n += (size_t)snprintf(out + n, cap - n, "%sL%dH0", n ? "," : "", layer[i]);
}

/* Writes the tokens at the start and at each quarter of the prompt: "0,64,128,192". */
static size_t write_tokens(int n_prompt, char *out, size_t cap)
{
    size_t n = 0;
    for (int k = 0, last = -1; k < QUARTERS; k++) {
        int token = (int)((int64_t)n_prompt * k / QUARTERS);
        if (token > last)
            n += (size_t)snprintf(out + n, cap - n, "%s%d", n ? "," : "", token);
        last = token;
    }
    return n;
}

/* Returns true if the list contains this name. Probes with names are not sampled. */
static bool names(const char *list, const char *name)
{
    size_t n = strlen(name);
    for (const char *at = strstr(list, name); at; at = strstr(at + n, name))
        if ((at == list || at[-1] == ',') && (!at[n] || at[n] == ','))
            return true;
    return false;
}

struct auto_probes auto_probes_choose(const struct auto_run *r)
{
    struct auto_probes a = {.every = 1};
    a.too_long = r->n_tokens > LONG && probes_are_auto(r->probes);
    if (!probes_are_auto(r->probes) || a.too_long)
        return a;
    a.set = probes_auto(r->on_device, r->shadows);
    while (r->n_tokens / a.every > SAMPLE)
        a.every *= 2;
    if (names(r->probes, "dilution") || names(r->probes, "full"))
        a.every = 1;
    if (r->has_queries || LAYERS * r->head_dim > WATCH_MAX_NUMBERS)
        drop(&a.set, &probe_queries);
    if (r->has_watch)
        drop(&a.set, &probe_received);
    if (has(a.set, &probe_queries))
        write_heads(r->layers, a.heads, sizeof a.heads);
    if (has(a.set, &probe_received)) {
        size_t n = write_tokens(r->n_prompt, a.watch, sizeof a.watch);
        a.watch[n++] = '@';
        write_heads(r->layers, a.watch + n, sizeof a.watch - n);
    }
    if (!has(a.set, &probe_dilution))
        a.every = 1;
    return a;
}

void auto_probes_note(const struct auto_probes *a)
{
    if (a->too_long)
        fprintf(stderr,
                "note: the run may exceed %d tokens, so --probes auto records the columns of "
                "--probes paper; name further probes to record them\n",
                LONG);
}

void auto_probes_put(const struct auto_probes *a, struct buf *header)
{
    char text[160];
    if (a->every == 1 && !a->watch[0] && !a->heads[0])
        return;
    json_put_key(header, "sampled");
    buf_char(header, '{');
    if (a->every > 1) {
        snprintf(text, sizeof text, "every %d%s query", a->every, a->every == 2 ? "nd" : "th");
        json_put_member_str(header, "dilution", text);
    }
    if (a->watch[0]) {
        int n = (int)strcspn(a->watch, "@");
        snprintf(text, sizeof text, "tokens %.*s of query heads %s", n, a->watch, a->watch + n + 1);
        json_put_member_str(header, "received", text);
    }
    if (a->heads[0]) {
        snprintf(text, sizeof text, "query heads %s", a->heads);
        json_put_member_str(header, "queries", text);
    }
    buf_char(header, '}');
}
