/* test_budget.c - budgets in percent: their text, their entries, and the parameters that follow. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "engine/method/state.h"

static struct method row;
static struct method_params params;

static int parse(const char *text, const char *budget, int tokens, int turn, struct kvf_diag *d)
{
    struct budget b = {0};
    if (budget)
        cr_assert(budget_parse(budget, &b), "%s", budget);
    return method_parse_for(text, &b, &(struct budget_prompt){tokens, turn}, &row, &params, d);
}

Test(budget, texts)
{
    const char *const bad[] = {"",     "%",    "0%",          "0.0000001%", "100.000001%", "101%",
                               "-1%",  "1e1%", "12.5.5%",     " 12%",       "12 %",        "0",
                               "-3",   "1.5",  "x",           "16777217",   "1.%%",        ".%",
                               "0.0%", "nan%", "99999999999%"};
    const char *const same[] = {"25%", "12.5%", "0.000001%", "100%", "33.333333%", "1", "16777216"};
    struct budget b;
    char text[BUDGET_TEXT];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        cr_assert(!budget_parse(bad[i], &b), "'%s'", bad[i]);
    for (size_t i = 0; i < sizeof same / sizeof *same; i++) {
        cr_assert(budget_parse(same[i], &b), "'%s'", same[i]);
        budget_text(&b, text);
        cr_assert(strcmp(text, same[i]) == 0);
    }
    cr_assert(budget_parse("007.50%", &b));
    cr_assert(b.part == 7500000);
    cr_assert(budget_parse(".5%", &b));
    cr_assert(b.part == 500000);
    cr_assert(budget_parse("5.%", &b));
    cr_assert(b.part == 5000000);
}

/* Whole percents: floor(p n / 100) in integers, for which doubles give other numbers (29 % of 100).
 */
Test(budget, entries)
{
    for (int p = 1; p <= 100; p++)
        for (int n = 1; n < 3000; n++) {
            int whole = p * n / 100;
            int want = whole > 1 ? whole : 1;
            cr_assert(budget_entries(p * (BUDGET_WHOLE / 100), n) == want);
        }
    cr_assert(budget_entries(BUDGET_WHOLE, 1 << 24) == 1 << 24);
}

/* A fraction has the parameters of its entries. */
Test(budget, as_entries)
{
    static const char *const methods[] = {
        "snapkv",       "h2o",    "window", "pyramidkv", "adakv", "gkv",         "rkv",
        "scissorhands", "locret", "tova",   "keydiff",   "cake",  "wgkv-snapkv", "snapkv:sinks=2"};
    struct kvf_diag d = {""};
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        for (int tokens = 40; tokens < 2000; tokens += 97) {
            struct method_params by_number;
            cr_assert(method_parse(methods[i], tokens * 3 / 8, &row, &by_number, &d) == 0);
            cr_assert(parse(methods[i], "37.5%", tokens, 0, &d) == 0, "%s", d.text);
            cr_assert(params.part == 37500000);
            cr_assert(!params.open);
            params.part = 0;
            cr_assert(memcmp(&params, &by_number, sizeof params) == 0, "%s of %d", methods[i],
                      tokens);
        }
}

Test(budget, placeholder_until_a_prompt_is_known)
{
    struct kvf_diag d = {""};
    cr_assert(parse("snapkv", "25%", 0, 0, &d) == 0);
    cr_assert(params.open);
    cr_assert(parse("snapkv:budget=25%", NULL, 0, 0, &d) == 0);
    cr_assert(params.open);
    cr_assert(parse("snapkv:budget=25%", "64", 400, 0, &d) == 0); /* the method's own wins */
    cr_assert(params.budget == 100);
    cr_assert(parse("snapkv:budget=64", "25%", 400, 0, &d) == 0);
    cr_assert(params.budget == 64);
    cr_assert(params.part == 0);
}

Test(budget, of_all_tokens_so_far)
{
    struct kvf_diag d = {""};
    cr_assert(parse("h2o:of=seen", "25%", 400, 0, &d) == 0);
    cr_assert(params.budget == 100);
    cr_assert(method_budget_at(&params, 400) == 100);
    cr_assert(method_budget_at(&params, 403) == 100);
    cr_assert(method_budget_at(&params, 404) == 101);
    cr_assert(params.recent == 50); /* of the first cut */
    cr_assert(parse("h2o:of=seen,chunk=64", "25%", 400, 0, &d) == 0);
    cr_assert(params.budget == 16);
    cr_assert(parse("h2o:of=seen,chunk=64", "25%", 40, 0, &d) == 0);
    cr_assert(params.budget == 10);
    cr_assert(parse("h2o:of=seen,cut=turn", "25%", 400, 120, &d) == 0);
    cr_assert(params.budget == 30);
    cr_assert(parse("h2o:cut=turn", "25%", 400, 120, &d) == 0);
    cr_assert(params.budget == 100);
    cr_assert(method_budget_at(&params, 4000) == 100);
}

struct refusal {
    const char *text, *budget;
    int tokens;
    const char *says;
};

static const struct refusal refusals[] = {
    {"h2o:of=seen", "64", 400, "of=seen needs a budget in percent"},
    {"h2o:of=seen,cut=prompt", "25%", 400, "of=seen has no effect with cut=prompt"},
    {"h2o:of=all", "25%", 400, "'all' is not a value for of"},
    {"local:of=seen", "25%", 400, "of would have no effect"},
    {"full:cut=prompt", NULL, 400, "cut would have no effect"},
    {"quest:cut=prompt", "25%", 400, "cut would have no effect"},
    {"duo", "25%", 400, "a budget would have no effect"},
    {"wgkv:cut=prompt", NULL, 400, "cut needs a budget"},
    {"h2o:cut=prompt,every=4", "64", 400, "every, order=after, slack and stride"},
    {"h2o:cut=turn,slack=4", "64", 400, "every, order=after, slack and stride"},
    {"h2o:cut=prompt,order=after", "64", 400, "give cut=always"},
    {"h2o:cut=once", "64", 400, "'once' is not a value for cut"},
    {"h2o:sinks=20,recent=20", "10%", 300,
     "20 sinks, 20 recent entries and cuts every 1 do not fit "
     "into --budget 10%, which is 30 entries here"},
    {"h2o:budget=0%", NULL, 300, "'0%' is not a value for budget"},
};

Test(budget, rejected)
{
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        const struct refusal *r = &refusals[i];
        struct kvf_diag d = {""};
        cr_assert(parse(r->text, r->budget, r->tokens, 0, &d) == KVF_E_ARG, "%s", r->text);
        cr_assert(strstr(d.text, r->says), "%s: %s", r->text, d.text);
    }
}

/* Presets that cut every so many tokens cut once like the others. */
Test(budget, one_cut_takes_no_more_than_it_must)
{
    struct kvf_diag d = {""};
    for (const struct method *m = method_presets; m->name; m++) {
        char text[64];
        snprintf(text, sizeof text, "%s:cut=prompt", m->name);
        if (!m->score || parse(text, "64", 400, 0, &d) != KVF_OK)
            continue;
        cr_assert(params.every == 1, "%s", text);
    }
}
