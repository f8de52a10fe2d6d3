/* test_options.c - --method NAME:key=value: rejected options, and parameters of accepted
 * options. */
#include <ctype.h>

#include "engine/method/state.h"
#include "tests/suite.h"

static struct method row;
static struct method_params params;

static void accept(const char *text, int budget)
{
    struct kvf_diag d = {""};
    cr_assert(zero(int, method_parse(text, budget, &row, &params, &d)), "%s: %s", text, d.text);
}

struct refusal {
    const char *text;
    int budget;
    const char *says;
};

static const struct refusal refusals[] = {
    {"", 8, "no method ''; 'kvfate methods' lists them"},
    {"nothing", 8, "no method 'nothing'"},
    {":sinks=1", 8, "no method"},
    {"h2o", 0,
     "needs --budget N: 1 or more entries that each KV head may hold, or a fraction of the "
     "prompt such as 50%"},
    {"quest", 0, "entries that each KV head may read"},
    {"duo", 8, "a budget would have no effect"},
    {"h2o:nothing=1", 8, "unknown option 'nothing'; options are score, allocation"},
    {"h2o:window=3", 8, "method h2o: window would have no effect"},
    {"full:sinks=3", 8, "method full: sinks would have no effect"},
    {"full:score=random", 8, "score would have no effect"},
    {"h2o:sinks", 8, "'' is not a value for sinks"},
    {"h2o:=3", 8, "write options as key=value,key=value"},
    {"h2o:group=many", 8, "'many' is not a value for group"},
    {"h2o:sinks=-1", 8, "'-1' is not a value for sinks"},
    {"h2o:sinks=1.5", 8, "'1.5' is not a value for sinks"},
    {"h2o:every=0", 8, "'0' is not a value for every"},
    {"snapkv:pool=4", 8, "'4' is not a value for pool"},
    {"snapkv:window=4097", 8, "'4097' is not a value for window"},
    {"rkv:lambda=nan", 8, "is not a value for lambda"},
    {"trimkv:offset=4", 8, "'4' is not a value for offset"},
    {"trimkv:lookahead=0", 8, "'0' is not a value for lookahead"},
    {"wgkv:tau=1.5", 8, "'1.5' is not a value for tau"},
    {"quest:page=4097", 8, "'4097' is not a value for page"},
    {"random:seed=9007199254740993", 8, "is not a value for seed"},
    {"h2o:budget=0", 8, "'0' is not a value for budget"},
    {"h2o:variant=old", 8, "'old' is not a value for variant"},
    {"h2o:score=none", 8, "no score 'none'"},
    {"h2o:allocation=none", 8, "no allocation 'none'"},
    {"h2o:read=none", 8, "no read 'none'"},
    {"h2o:sinks=5,recent=4", 8, "5 sinks, 4 recent entries and cuts every 1 do not fit"},
    {"h2o:sinks=8", 8, "do not fit into --budget 8"},
    {"h2o:every=9", 8, "do not fit into --budget 8"},
    {"h2o:allocation=global", 8, "do not mean the same in every head"},
    {"tova:allocation=adaptive", 8, "one set of entries per layer cannot be shared between heads"},
    {"tova:score=write-gate,allocation=global", 8, "one set of entries per layer"},
    {"h2o:read=seer", 8, "gated blocks must keep all their entries"},
    {"h2o:read=quest,reads=0", 8, "'0' is not a value for reads"},
    {"h2o:reads=4", 8, "reads would have no effect"},
    {"quest:reads=4", 8, "reads would have no effect"},
    {"h2o:read=quest,channels=4", 8, "channels would have no effect"},
    {"knorm:read=quest,group=max", 8, "group would have no effect"},
    {"h2o:read=quest,positions=cache", 8, "positions=cache needs a method"},
    {"wgkv:read=quest", 0, "give reads=N"},
    {"rocketkv:every=2", 40, "give cut=always"},
    {"rocketkv:order=after", 40, "give cut=always"},
    {"rocketkv:slack=1", 40, "give cut=always"},
    {"random:protect=all", 40, "'all' is not a value for protect"},
    {"quest:protect=prompt", 40, "protect would have no effect"},
    {"wgkv-quest:read=seer", 8, "gated blocks must keep all their entries"},
    {"quest:group=mean", 8, "pages are chosen per query head (group=none)"},
    {"wgkv:positions=cache", 8, "positions=cache needs a method"},
    {"expected-attention:positions=cache", 8, "positions=cache needs a method"},
    {"next-topk:chunk=4", 8, "leave chunk out"},
    {"h2o:allocation=cake", 8, "weighs layers by the rows of a window"},
    {"full:allocation=cake", 0, "weighs layers by the rows of a window"},
    {"local:recent=0", 8, "recent is at least 1"},
    {"duo:recent=0", 0, "recent is at least 1"},
    {"duo:read=quest", 0, "reading pages needs a budget"},
};

Test(options, refusals_say_why)
{
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        const struct refusal *r = &refusals[i];
        struct kvf_diag d = {""};
        struct method m = {.name = "untouched"};
        struct method_params p = {.budget = -7};
        int err = method_parse(r->text, r->budget, &m, &p, &d);
        cr_expect(eq(int, err, KVF_E_ARG), "'%s' was accepted", r->text);
        cr_expect(strstr(d.text, r->says) != NULL, "'%s': %s", r->text, d.text);
        cr_expect(strchr(d.text, '\n') == NULL, "'%s': one line", r->text);
        cr_expect(zero(int, strcmp(m.name, "untouched")), "'%s'", r->text);
        cr_expect(eq(int, p.budget, -7));
    }
}

/* Returns true if a text names a preset and its options. */
static bool names(const char *text, const char *preset, int sinks, int positions)
{
    struct kvf_diag d = {""};
    struct method_params p;
    return method_parse(text, 200, &row, &p, &d) == KVF_OK && strcmp(row.name, preset) == 0
           && p.sinks == sinks && p.positions == positions;
}

Test(options, names_of_papers_and_libraries)
{
    cr_expect(names("H2O", "h2o", 0, POSITIONS_ORIGINAL));
    cr_expect(names("Scissor-Hands", "scissorhands", 0, POSITIONS_ORIGINAL));
    cr_expect(names("StreamingLLM", "window", 4, POSITIONS_CACHE));
    cr_expect(names("streaming_llm:sinks=8", "window", 8, POSITIONS_CACHE));
    cr_expect(names("streaming-llm:positions=original", "window", 4, POSITIONS_ORIGINAL));
    cr_expect(names("StreamingLLMPress", "window", 4, POSITIONS_ORIGINAL));
    cr_expect(names("Ada-SnapKV", "adakv", 0, POSITIONS_ORIGINAL));
    for (const struct method *m = method_presets; m->name; m++)
        for (const char *list = m->aliases, *at = list; at && *at;) {
            char text[200], upper[200];
            struct method_alias a;
            struct kvf_diag d = {""};
            struct method_params p;
            cr_assert(method_next_alias(&at, &a));
            snprintf(text, sizeof text, "%.*s", (int)a.n_name, a.name);
            for (size_t i = 0; i <= a.n_name; i++)
                upper[i] = (char)toupper((unsigned char)text[i]);
            int err = method_parse(upper, m->unbudgeted ? 0 : 200, &row, &p, &d);
            bool gated = err == KVF_OK && method_gates(m);
            cr_expect(err == KVF_OK || gated, "%s: %s", upper, d.text);
            cr_expect(zero(int, strcmp(row.name, m->name)), "%s is %s", upper, row.name);
            for (const struct method *o = method_presets; o->name; o++)
                cr_expect(strcmp(o->name, text) != 0, "%s is an alias and a preset", text);
        }
}

Test(options, every_row_with_any_budget)
{
    for (const struct method *m = method_presets; m->name; m++)
        for (int B = 0; B <= 70; B++) {
            struct kvf_diag d = {""};
            struct method_params p;
            int err = method_parse(m->name, B, &row, &p, &d);
            bool needs = m->score || !m->read->all || m->params.recent == RECENT_REST;
            bool can = m->unbudgeted ? B == 0 : B > 0 || m->free || !needs;
            cr_assert(eq(int, err == KVF_OK, can), "%s with %d: %s", m->name, B, d.text);
            if (!can || !m->score || B == 0)
                continue;
            /* Every eviction needs space for the new entry and `every` - 1 more. */
            int newest = p.recent > 1 ? p.recent : 1;
            cr_assert(le(int, p.sinks + newest + p.every - 1, B), "%s with %d", m->name, B);
            cr_assert(p.window >= (m->params.window > 0) && p.every >= 1, "%s with %d", m->name, B);
        }
}

Test(options, what_is_derived_gives_way)
{
    accept("window", 3); /* B / 4 sinks */
    cr_expect(eq(int, params.sinks, 0));
    cr_expect(eq(int, params.recent, 3));
    accept("window", 17);
    cr_expect(eq(int, params.sinks, 4));
    cr_expect(eq(int, params.recent, 13));
    accept("snapkv:sinks=6", 8); /* window 2 */
    cr_expect(eq(int, params.window, 2));
    cr_expect(eq(int, params.recent, 2));
    accept("snapkv:sinks=7", 8);
    cr_expect(eq(int, params.recent, 1));
    accept("rkv:sinks=13", 16); /* window 4, every 4: recent shrinks first */
    cr_expect(eq(int, params.recent, 0));
    cr_expect(eq(int, params.every, 3));
    accept("scissorhands", 1);
    cr_expect(eq(int, params.every, 1));
    accept("wgkv", 0);
    cr_expect(eq(int, params.local, 256));
    accept("wgkv", 100);
    cr_expect(eq(int, params.local, 25));
    cr_expect(eq(int, params.recent, 25));
    accept("wgkv:local=300", 100);
    cr_expect(eq(int, params.local, 300));
    cr_expect(eq(int, params.recent, 100));
}

Test(options, variant_comes_first_wherever_it_stands)
{
    accept("trimkv", 8);
    cr_expect(eq(int, params.offset, 0));
    cr_expect(eq(int, params.order, ORDER_BEFORE));
    cr_expect(eq(int, params.slack, 0));
    accept("trimkv:slack=3,variant=code", 8);
    cr_expect(eq(int, params.offset, 2));
    cr_expect(eq(int, params.order, ORDER_AFTER));
    cr_expect(eq(int, params.slack, 3));
    accept("dbtrimkv:variant=code", 8);
    cr_expect(eq(int, params.offset, 3));
    cr_expect(eq(int, params.lookahead, 2));
    cr_expect(eq(int, params.slack, 127));
    for (int i = 0; i < 3; i++) {
        const char *const rows[] = {"wgkv:variant=code", "wgkv-snapkv:variant=code",
                                    "wgkv-quest:variant=code"};
        accept(rows[i], 8);
        cr_expect(eq(int, params.compare, COMPARE_GT), "%s", rows[i]);
    }
    accept("trimkv:variant=code,variant=paper", 8); /* the last value counts */
    cr_expect(eq(int, params.slack, 0));
    accept("snapkv:variant=code", 8); /* defines no other value */
    cr_expect(eq(int, params.order, ORDER_BEFORE));
}

Test(options, parts_by_name)
{
    accept("window:score=random,seed=5", 8);
    cr_expect(zero(int, strcmp(row.score->name, "random")));
    cr_expect(eq(int, (int)row.reason, (int)KVF_REASON_BUDGET)); /* the preset now has a score */
    accept("h2o:score=window-attention", 200);
    cr_expect(eq(int, params.window, 32));
    accept("h2o:score=expected-attention", 8);
    cr_expect(eq(int, params.horizon, 512));
    accept("snapkv:allocation=pyramid", 64);
    cr_expect(eq(dbl, params.beta, 20));
    accept("full:read=seer", 8);
    cr_expect(eq(int, params.page, 64));
    accept("full:read=quest,group=max", 8);
    cr_expect(eq(int, params.page, 16));
    accept("h2o:score=retention,allocation=global", 8);
    cr_expect(eq(int, params.lookahead, 1));
    accept("snapkv:pool_kind=avg", 8); /* both spellings are accepted */
    cr_expect(eq(int, params.pool_kind, POOL_AVG));
    accept("h2o:budget=5", 8);
    cr_expect(eq(int, params.budget, 5));
    accept("quest:budget=5", 0);
    cr_expect(eq(int, params.budget, 5));
    accept("h2o:read=quest", 9);
    cr_expect(eq(int, params.reads, 4));
    cr_expect(eq(int, params.page, 16));
    accept("wgkv:read=seer-oracle,reads=7", 0);
    cr_expect(eq(int, params.reads, 7));
    cr_expect(eq(int, params.page, 64));
    accept("rocketkv:reads=256", 2679); /* 2679 / 512 = 5.23: its root rounded up is 3 */
    cr_expect(eq(int, params.page, 3));
    cr_expect(eq(int, params.channels, 0));
    accept("rocketkv:reads=8", 20); /* 20 / 16 = 1.25, which is less than 2 */
    cr_expect(eq(int, params.page, 1));
}

/* `recent` and `every` are derived again for each prompt.  Given numbers stay, and what does not
 * fit is rejected. */
Test(options, protected_tokens_take_places)
{
    const struct method_range ranges[] = {{NULL, 2, 5}, {"a", 8, 12}, {"b", 11, 14}};
    struct method_inputs in = {.prompt = 20, .ranges = ranges, .n_ranges = 3};
    static const struct {
        const char *text;
        int budget, n, recent, every;
    } good[] = {
        {"window:protect=system", 20, 1, 15, 1},          /* 4 is the one after the 4 sinks */
        {"window:protect=spans", 20, 6, 10, 1},           /* 8 to 13 */
        {"window:protect=spans:b+sinks:6", 20, 5, 11, 1}, /* 4, 5 and 11 to 13 */
        {"window:protect=prompt", 40, 16, 20, 1},
        {"window:protect=prompt,recent=3", 40, 16, 3, 1},
        {"random:protect=prompt", 21, 20, 0, 1},
        {"scissorhands:protect=sinks:30", 40, 30, 0, 10}, /* recent 10 gives way, then every 20 */
        {"wgkv-quest:protect=prompt", 4, 20, 0, 1},       /* the budget limits what is read */
        {"random:protect=none", 4, 0, 0, 1},
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct kvf_diag d = {""};
        accept(good[i].text, good[i].budget);
        for (int again = 0; again < 2; again++) {
            cr_expect(zero(int, method_protect(&row, &params, &in, &d)), "%s", d.text);
            cr_expect(eq(int, params.n_protected, good[i].n), "%s", good[i].text);
            cr_expect(eq(int, params.recent, good[i].recent), "%s", good[i].text);
            cr_expect(eq(int, params.every, good[i].every), "%s", good[i].text);
        }
    }
    static const struct {
        const char *text;
        int budget;
        const char *said;
    } bad[] = {
        {"random:protect=prompt", 20, "20 tokens of protect=prompt"},
        {"random:protect=prompt", 20, "give 21 or more"},
        {"window:protect=prompt,recent=5", 24, "give 25 or more"},
        {"random:protect=spans:c", 40, "no span of this name"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct kvf_diag d = {""};
        accept(bad[i].text, bad[i].budget);
        cr_expect(eq(int, method_protect(&row, &params, &in, &d), KVF_E_ARG));
        cr_expect(ne(ptr, strstr(d.text, bad[i].said), NULL), "%s", d.text);
    }
    in.n_ranges = 0;
    struct kvf_diag d = {""};
    accept("random:protect=system", 40);
    cr_expect(eq(int, method_protect(&row, &params, &in, &d), KVF_E_ARG));
    cr_expect(ne(ptr, strstr(d.text, "no system message"), NULL), "%s", d.text);
}

Test(options, listed_as_they_run)
{
    int found = 0;
    accept("random:seed=9007199254740992,tie=older,slack=2", 8);
    for (const struct method_option *o = method_options; o->key; o++) {
        const char *word = method_option_word(o, &params);
        double x = method_option_value(o, &params);
        found += strcmp(o->key, "tie") == 0 && strcmp(word, "older") == 0;
        found += strcmp(o->key, "slack") == 0 && !word && x > 1.5 && x < 2.5;
        found += strcmp(o->key, "seed") == 0 && x == 9007199254740992.0;
    }
    cr_expect(eq(int, found, 3));
}
