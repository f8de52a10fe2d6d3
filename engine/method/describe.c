/* describe.c - describes a method in words: its gates, the scope of its choice, its cost
 * (describe.h). */
#include <stdio.h>
#include <string.h>

#include "engine/method/describe.h"
#include "engine/method/state.h"

static bool follows_plan(const struct method *m)
{
    return m->admission->until && m->admission->reason == KVF_REASON_PLAN;
}

/* Appends to a list in out, of cap bytes. */
static void add_word(char *out, size_t cap, const char *between, const char *word)
{
    size_t n = strlen(out);
    snprintf(out + n, cap - n, "%s%s", n ? between : "", word);
}

void method_needs(const struct method *m, char *out, size_t cap)
{
    unsigned e = method_row_evidence(m);
    const struct {
        bool needed;
        const char *name;
    } part[] = {
        {e & (EVIDENCE_SUM | EVIDENCE_WINDOW), "attention"},
        {e & (EVIDENCE_KEYS | EVIDENCE_NORMS | EVIDENCE_PAGES | EVIDENCE_MOMENTS)
             || (!m->read->all && !m->read->gates),
         "keys"},
        {e & EVIDENCE_VALUES, "values"},
        {e & EVIDENCE_MOMENTS || !m->read->all, "queries"},
        {e & EVIDENCE_FULL, "twin"},
        {follows_plan(m) || (m->score && m->score->needs_mass), "plan"},
        {method_gates(m), "gates"},
    };
    out[0] = 0;
    for (size_t i = 0; i < sizeof part / sizeof *part; i++)
        if (part[i].needed)
            add_word(out, cap, ",", part[i].name);
    if (!out[0])
        add_word(out, cap, "", "nothing");
}

const char *method_one_set_for(const struct method *m, const struct method_params *p)
{
    bool alone = !m->score && m->read->uses & USES_GROUP && p->group == GROUP_NONE;
    if (alone || method_per_query_head(m, p))
        return "query head";
    return m->scope == SCOPE_LAYER ? "layer" : "KV head";
}

/* Writes which pages are always read. */
static void describe_read(const struct method *m, char *out, size_t cap)
{
    const char *unit = m->read->shared ? "block" : "page";
    if (m->read->entries)
        snprintf(out, cap, "nothing");
    else
        snprintf(out, cap, "reads the newest %s", m->admission->uses & USES_LOCAL ? "W" : unit);
}

void method_protects(const struct method *m, char *out, size_t cap)
{
    const struct method_params *p = &m->params;
    out[0] = 0;
    if (!m->read->all && !m->score) {
        describe_read(m, out, cap);
        return;
    }
    if (!m->score && !(m->admission->uses & USES_SPANS)) {
        snprintf(out, cap, "%s", follows_plan(m) ? "as the plan" : "everything");
        return;
    }
    if (p->sinks)
        add_word(out, cap, ", ", "sinks");
    if (p->recent == RECENT_WINDOW)
        add_word(out, cap, ", ", "window");
    else if (p->recent)
        add_word(out, cap, ", ", "recent");
    if (p->recent == RECENT_HALF)
        add_word(out, cap, " ", "B/2");
    if (p->recent == RECENT_LOCAL)
        add_word(out, cap, " ", "W");
    if (p->recent > 0 && m->score) {
        char published[16];
        snprintf(published, sizeof published, "%d", p->recent);
        add_word(out, cap, " ", published);
    }
    if (!out[0])
        add_word(out, cap, "", "nothing");
    if (!m->read->all && !m->read->entries) {
        char read[64];
        describe_read(m, read, sizeof read);
        add_word(out, cap, "; ", read);
    }
}

void method_state_formula(const struct method *m, char *out, size_t cap)
{
    struct evidence_terms t = evidence_terms_of(method_row_evidence(m));
    const struct {
        double times;
        const char *what;
    } part[] = {
        {t.gw > 0 ? 0 : t.g, " g"}, {t.D, " D"}, {t.D_p, " D / p"}, {t.d_p, " d / p"}, {t.one, ""}};
    char term[48];
    out[0] = 0;
    if (t.gw > 0) {
        snprintf(term, sizeof term, "%g g (w + %g)", t.gw, t.g / t.gw);
        add_word(out, cap, "", term);
    }
    for (size_t i = 0; i < sizeof part / sizeof *part; i++) {
        snprintf(term, sizeof term, "%g%s", part[i].times, part[i].what);
        if (part[i].times > 0)
            add_word(out, cap, " + ", term);
    }
    if (!out[0])
        add_word(out, cap, "", "0");
}

const char *method_gates_name(const struct method *m)
{
    unsigned need = method_gates(m);
    for (int kind = GATE_RETENTION; kind <= GATE_BLOCKS; kind++)
        if (need >> kind & 1)
            return gates_kind_name((enum gate_kind)kind);
    return NULL;
}
