#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analyzers/dilution_useful.h"
#include "libtrace/run_header.h"

/* Sets *ret to whether a name is the only useful one of the run's spans: its set is then `span`. */
static int is_all_spans(const struct kvf_trace *t, const char *name, bool *ret, struct kvf_diag *d)
{
    struct json *root = NULL;
    int useful = 0;
    bool mine = false;
    int err = run_header(t, &root, d);
    if (err)
        return err;
    for (const struct json *s = json_first(json_get(root, "spans")); s; s = json_next(s))
        if (json_bool(json_get(s, "useful"), true)) {
            useful++;
            mine |= strcmp(json_str(json_get(s, "name"), ""), name) == 0;
        }
    json_free(root);
    *ret = mine && useful == 1;
    return KVF_OK;
}

/* The number of text among those that are recorded, or -1. */
static int recorded(const char *text, const double *numbers, int n)
{
    char *end;
    double v = strtod(text, &end);
    for (int i = 0; i < n; i++)
        if (end != text && !*end && v == numbers[i])
            return i;
    return -1;
}

int useful_parse(const struct kvf_trace *t, const char *text, struct useful_set *p,
                 struct kvf_diag *d)
{
    static const double tops[] = {64, 128, 256, 512}, masses[] = {.90, .95, .99},
                        slacks[] = {1, 2, 4};
    int i = -1;
    if (!text)
        text = kvf_find(t, "useful.span") >= 0 ? "span" : "topk:64";
    snprintf(p->text, sizeof p->text, "%s", text);
    bool span = strncmp(text, "span:", 5) == 0 && text[5] && strlen(text) <= 21;
    if (strcmp(text, "span") == 0 || span) {
        bool all = true;
        int err = span ? is_all_spans(t, text + 5, &all, d) : KVF_OK;
        snprintf(p->set, sizeof p->set, "span%s%s", all ? "" : ".", all ? "" : text + 5);
        return err;
    }
    if (strcmp(text, "plan") == 0) {
        snprintf(p->set, sizeof p->set, "plan");
        return KVF_OK;
    }
    p->prefix = true;
    if (strncmp(text, "topk:", 5) == 0) {
        i = recorded(text + 5, tops, 4);
        p->top = i < 0 ? 0 : (int)tops[i];
        snprintf(p->set, sizeof p->set, "top%d", p->top);
    } else if (strncmp(text, "mass:", 5) == 0) {
        i = recorded(text + 5, masses, 3);
        snprintf(p->set, sizeof p->set, "mass.%d", i < 0 ? 0 : (int)(100 * masses[i] + .5));
    } else if (strncmp(text, "topk-slack:", 11) == 0) {
        i = recorded(text + 11, slacks, 3);
        snprintf(p->set, sizeof p->set, "slack.%d", i < 0 ? 0 : (int)slacks[i]);
    }
    if (i < 0)
        return kvf_fail(d, KVF_E_ARG,
                        "--useful: '%s' is none of span, span:NAME, plan, "
                        "topk:64|128|256|512, mass:0.90|0.95|0.99 and topk-slack:1|2|4",
                        text);
    return KVF_OK;
}
