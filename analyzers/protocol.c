/* protocol.c - names the settings of a run (protocol.h). */
#include "analyzers/protocol.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Appends a setting to a list that begins at `start`. */
static void put(struct buf *out, size_t start, const char *lead, const char *value)
{
    buf_printf(out, "%s%s%s", out->len > start ? ", " : "", lead, value);
}

/* Returns true if the options "key=value,..." have a key. */
static bool has_option(const char *options, const char *key)
{
    size_t n = strlen(key);
    for (const char *s = options; s; s = strchr(s, ',') ? strchr(s, ',') + 1 : NULL)
        if (strncmp(s, key, n) == 0 && s[n] == '=')
            return true;
    return false;
}

enum { BUDGET_TEXT = 40 };

/* Writes "budget=25%" or "budget=64", or "" for a method without a budget. */
static void budget_text(char out[BUDGET_TEXT], const struct json *method)
{
    double percent = json_num(json_get(method, "budget_percent"), NAN);
    int64_t entries = json_int(json_get(method, "budget"), 0);
    out[0] = 0;
    if (!isnan(percent))
        snprintf(out, BUDGET_TEXT, "budget=%.8g%%", percent);
    else if (entries > 0)
        snprintf(out, BUDGET_TEXT, "budget=%lld", (long long)entries);
}

/* Appends the budget of a method unless it is "" or equal to `usual`, and its options, with
 * `between` between them. */
static void put_method(struct buf *out, const struct json *method, const char *usual,
                       const char *between)
{
    /* members that are absent for the default protocol; a preset can have others */
    static const char *const members[] = {"cut", "of", "protect"};
    const char *options = json_str(json_get(method, "options"), ""), *gap = "";
    char budget[BUDGET_TEXT];
    budget_text(budget, method);
    if (budget[0] && strcmp(budget, usual) != 0) {
        buf_str(out, budget);
        gap = between;
    }
    for (const char *s = options; *s; s += strcspn(s, ","), s += *s == ',') {
        buf_printf(out, "%s%.*s", gap, (int)strcspn(s, ","), s);
        gap = between;
    }
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        const char *value = json_str(json_get(method, members[i]), NULL);
        if (!value || has_option(options, members[i]))
            continue;
        buf_printf(out, "%s%s=%s", gap, members[i], value);
        gap = between;
    }
}

void overrides_put(struct buf *out, const struct json *header)
{
    const struct json *o = json_first(json_get(header, "overrides"));
    char usual[BUDGET_TEXT];
    struct buf options = {0};
    budget_text(usual, json_get(header, "method"));
    for (const char *gap = ""; o; o = json_next(o), gap = "; ") {
        buf_clear(&options);
        put_method(&options, o, usual, ",");
        buf_printf(out, "%s%s=%s%s%s", gap, json_str(json_get(o, "heads"), "?"),
                   json_str(json_get(o, "name"), "?"), options.len ? ":" : "",
                   options.len ? options.data : "");
    }
    out->err = out->err ? out->err : options.err;
    buf_finish(&options);
}

static void put_overrides(struct buf *out, size_t start, const struct json *header)
{
    struct buf text = {0};
    char count[32];
    int n = json_len(json_get(header, "overrides"));
    overrides_put(&text, header);
    snprintf(count, sizeof count, "%d overrides", n);
    if (text.len > PROTOCOL_OVERRIDES)
        put(out, start, "", count);
    else if (text.len)
        put(out, start, n > 1 ? "overrides " : "override ", text.data);
    out->err = out->err ? out->err : text.err;
    buf_finish(&text);
}

/* Appends the form and the hash of the table of heads, of the first method that has one. */
static void put_heads(struct buf *out, size_t start, const struct json *header)
{
    const struct json *x = json_get(json_get(header, "method"), "head_budgets");
    const struct json *o = json_first(json_get(header, "overrides"));
    char text[64];
    for (; !x && o; o = json_next(o))
        x = json_get(o, "head_budgets");
    if (!x)
        return;
    snprintf(text, sizeof text, "%.20s %.20s", json_str(json_get(x, "form"), "?"),
             json_str(json_get(x, "hash"), "?"));
    put(out, start, "head budgets ", text);
}

void protocol_put(struct buf *out, const struct json *header)
{
    const struct json *run = json_get(header, "run");
    const char *question = json_str(json_get(run, "question"), "known");
    const char *type = json_str(json_get(run, "kv_type"), "f16");
    const struct json *method = json_get(header, "method");
    char budget[BUDGET_TEXT];
    size_t start = out->len;
    bool percent = json_get(method, "budget_percent") != NULL;
    budget_text(budget, method);
    put_method(out, method, percent ? "" : budget, ", ");
    if (strcmp(type, "f16") != 0)
        put(out, start, "cache type ", type);
    if (strcmp(question, "known") != 0)
        put(out, start, "question ", question);
    put_overrides(out, start, header);
    put_heads(out, start, header);
}

void label_copy(char *out, size_t cap, const char *text)
{
    size_t n = strlen(text);
    if (n < cap) {
        memcpy(out, text, n + 1);
        return;
    }
    n = cap - 4;
    while (n && ((unsigned char)text[n] & 0xc0) == 0x80)
        n--; /* cut at the start of a character */
    memcpy(out, text, n);
    memcpy(out + n, "...", 4);
}

/* Appends the settings of a protocol except one, which is found as a whole.  Returns true if the
 * protocol has it. */
static bool put_without(struct buf *out, const char *protocol, const char *one)
{
    bool found = false;
    size_t start = out->len;
    for (const char *s = protocol, *next; *s; s = next) {
        const char *end = strstr(s, ", ");
        size_t n = end ? (size_t)(end - s) : strlen(s);
        next = end ? end + 2 : s + n;
        if (strlen(one) == n && strncmp(s, one, n) == 0)
            found = true;
        else
            buf_printf(out, "%s%.*s", out->len > start ? ", " : "", (int)n, s);
    }
    return found;
}

void label_put(struct buf *out, const char *method, const char *lead, const char *budget,
               double percent, const char *protocol)
{
    /* methods that have another name with this setting */
    static const char *const names[][3] = {{"window", "positions=cache", "streamingllm"}};
    char fraction[BUDGET_TEXT] = "";
    struct buf rest = {0}, last = {0};
    if (!isnan(percent))
        snprintf(fraction, sizeof fraction, "budget=%.8g%%", percent);
    bool has = put_without(&rest, protocol, fraction);
    const char *text = rest.len ? rest.data : "";
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(method, names[i][0]) == 0 && put_without(&last, text, names[i][1])) {
            method = names[i][2];
            text = last.len ? last.data : "";
        } else {
            buf_clear(&last);
        }
    buf_str(out, method);
    if (has)
        buf_printf(out, "%s%.8g%%", lead, percent);
    else if (*budget)
        buf_printf(out, "%s%s", lead, budget);
    if (*text)
        buf_printf(out, ", %s", text);
    out->err = out->err ? out->err : rest.err;
    out->err = out->err ? out->err : last.err;
    buf_finish(&rest);
    buf_finish(&last);
}

void run_label(char out[LABEL_TEXT], const struct json *header, const char *lead)
{
    struct buf text = {0}, protocol = {0};
    const struct json *method = json_get(header, "method");
    int64_t entries = json_int(json_get(method, "budget"), 0);
    char budget[24] = "";
    if (entries > 0 && *lead)
        snprintf(budget, sizeof budget, "%lld", (long long)entries);
    protocol_put(&protocol, header);
    label_put(&text, json_str(json_get(method, "name"), "?"), *lead ? lead : " ", budget,
              json_num(json_get(method, "budget_percent"), NAN), protocol.len ? protocol.data : "");
    label_copy(out, LABEL_TEXT, text.err || protocol.err ? "?" : text.data);
    buf_finish(&text);
    buf_finish(&protocol);
}
