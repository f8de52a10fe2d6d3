/* budget.c - budgets as numbers of entries and as fractions of a text. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/opt.h"
#include "engine/method/method_state.h"

enum { DECIMALS = 6 };

/* Parses "X%" in millionths of a percent.  Returns 0 if the text is no such fraction. */
static int64_t parse_percent(const char *text)
{
    int64_t part = 0;
    int places = -1; /* digits after the point; -1: no point yet */
    size_t n = strlen(text), digits = 0;
    if (n < 2 || text[n - 1] != '%')
        return 0;
    for (size_t i = 0; i + 1 < n; i++) {
        bool point = text[i] == '.' && places < 0;
        if (!point && (text[i] < '0' || text[i] > '9' || places == DECIMALS || part > BUDGET_WHOLE))
            return 0;
        digits += !point;
        places += point || places >= 0;
        part = point ? part : part * 10 + (text[i] - '0');
    }
    for (int i = places > 0 ? places : 0; i < DECIMALS && part <= BUDGET_WHOLE; i++)
        part *= 10;
    return digits && part <= BUDGET_WHOLE ? part : 0;
}

bool budget_parse(const char *text, struct budget *ret)
{
    int64_t n;
    struct budget b = {.part = parse_percent(text)};
    if (!b.part && (!opt_int(text, &n) || n < 1 || n > BUDGET_MOST))
        return false;
    b.entries = b.part ? 0 : (int)n;
    *ret = b;
    return true;
}

const char *budget_advice(const char *text)
{
    double x;
    char number[32] = "";
    size_t n = strspn(text, "0123456789.");
    if (n > 0 && n < sizeof number)
        memcpy(number, text, n);
    if (strcmp(text + n, "%") != 0 || !opt_real(number, &x))
        return "give entries from 1 to 16777216, or a fraction of the prompt such as 25%";
    return x > 0 && x <= 100 ? "a fraction has at most 6 decimal places"
                             : "a fraction is above 0% and at most 100% of the prompt, such as 25%";
}
static_assert(BUDGET_MOST == 16777216 && DECIMALS == 6, "the numbers in the advice");

void budget_text(const struct budget *b, char out[BUDGET_TEXT])
{
    const int64_t one = BUDGET_WHOLE / 100;
    if (!b->part) {
        snprintf(out, BUDGET_TEXT, "%d", b->entries);
        return;
    }
    size_t n = (size_t)snprintf(out, BUDGET_TEXT, "%d.%06d", (int)(b->part / one),
                                (int)(b->part % one));
    while (out[n - 1] == '0')
        n--;
    n -= out[n - 1] == '.';
    out[n++] = '%';
    out[n] = 0;
}

int budget_entries(int64_t part, int64_t tokens)
{
    int64_t n = part * tokens / BUDGET_WHOLE;
    return n > 1 ? (int)n : 1;
}

int method_budget_at(const struct method_params *p, int32_t reach)
{
    return p->part && p->of == BUDGET_OF_SEEN ? budget_entries(p->part, reach) : p->budget;
}
