/* cmd_methods.c - `kvfate methods` lists the presets of --method as a table, or describes one in
 * full. */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "cli/commands.h"
#include "cli/methods_json.h"
#include "engine/method/describe.h"

/* Sizes for which bytes per entry are computed: the default model's, and the size of gates for
 * blocks. */
enum { GROUP = 3, HEAD_DIM = 64, GATE_DIM = 128, DEFAULT_BUDGET = 256 };

struct row {
    struct method m;
    struct method_params p;
    const char *gates; /* kind of its gates, such as "write"; NULL if it needs no gates */
    double state;
};

/* Parses a preset. budget 0 means not given; methods that need a budget then use DEFAULT_BUDGET. */
static int parse(const char *text, int budget, struct row *r, struct kvf_diag *d)
{
    *r = (struct row){.state = 0};
    int err = method_parse(text, budget, &r->m, &r->p, d);
    if (err && budget == 0)
        err = method_parse(text, DEFAULT_BUDGET, &r->m, &r->p, d);
    if (err)
        return err;
    struct method_shape shape = {
        .n_layers = 1, .n_heads = GROUP, .n_kv_heads = 1, .head_dim = HEAD_DIM};
    if (method_per_query_head(&r->m, &r->p))
        shape.n_heads = 1;
    r->gates = method_gates_name(&r->m);
    r->state = method_state_bytes(&r->m, &r->p, &shape, GATE_DIM);
    return KVF_OK;
}

static void put(struct buf *b, const char *key, const char *value)
{
    json_put_key(b, key);
    if (value)
        json_put_str(b, value, strlen(value));
    else
        buf_str(b, "null");
}

static void put_option(struct buf *b, const struct method_option *o, const struct method_params *p)
{
    buf_char(b, '{');
    put(b, "key", o->key);
    put(b, "help", o->help);
    if (o->words) {
        put(b, "value", method_option_word(o, p));
        json_put_key(b, "values");
        for (int i = 0; o->words[i]; i++) {
            buf_char(b, i ? ',' : '[');
            json_put_str(b, o->words[i], strlen(o->words[i]));
        }
        buf_str(b, "]}");
        return;
    }
    json_put_member_num(b, "value", method_option_value(o, p));
    json_put_member_num(b, "min", o->min);
    json_put_member_num(b, "max", o->max);
    put(b, "type", o->kind == OPTION_REAL ? "real" : "integer");
    buf_char(b, '}');
}

static void put_row(struct buf *b, const struct row *r)
{
    const struct method *m = &r->m;
    char needs[80], protects[80], formula[80];
    bool first = true;
    method_protects(m, protects, sizeof protects);
    method_state_formula(m, formula, sizeof formula);
    method_needs(&r->m, needs, sizeof needs);
    buf_char(b, '{');
    put(b, "name", m->name);
    put(b, "admission", m->admission->name);
    put(b, "score", m->score ? m->score->name : "none");
    put(b, "allocation", m->allocation->name);
    put(b, "trigger", m->trigger->name);
    put(b, "selection", m->read->name);
    put(b, "summary", m->summary);
    put(b, "source", m->source);
    put(b, "gates", r->gates);
    put(b, "code", m->code);
    put(b, "aliases", m->aliases);
    put(b, "needs", needs);
    put(b, "scope", method_one_set_for(m, &r->p));
    put(b, "cost", method_cost(m, &r->p));
    put(b, "protects", protects);
    put(b, "state_formula", formula);
    json_put_member_num(b, "state_bytes", r->state);
    json_put_member_num(b, "budget", r->p.budget);
    json_put_key(b, "options");
    buf_char(b, '[');
    for (const struct method_option *o = method_options; o->key; o++)
        if (method_option_counts(o, m)) {
            if (!first)
                buf_char(b, ',');
            put_option(b, o, &r->p);
            first = false;
        }
    buf_str(b, "]}");
}

int methods_json(struct buf *b, int budget)
{
    struct kvf_diag d;
    struct row r;
    for (const struct method *m = method_presets; m->name; m++) {
        buf_char(b, m == method_presets ? '[' : ',');
        int err = parse(m->name, m->unbudgeted ? 0 : budget, &r, &d);
        if (err)
            return err;
        put_row(b, &r);
    }
    buf_char(b, ']');
    return b->err;
}

/* Prints one preset as a JSON object, or all presets as an array if `one` is NULL. */
static int print_json(const struct row *one, int budget)
{
    struct buf b = {0};
    int err = KVF_OK;
    if (one)
        put_row(&b, one);
    else
        err = methods_json(&b, budget);
    buf_char(&b, '\n');
    if (!err)
        err = b.err;
    if (!err)
        fwrite(b.data, 1, b.len, stdout);
    buf_finish(&b);
    return err;
}

static int print_table(int budget)
{
    struct row r;
    struct kvf_diag d;
    char needs[80];
    printf("%-18s %-10s %-18s %-16s %-8s %-11s %-10s %-19s %-21s %5s  %s\n", "name", "admission",
           "score", "allocation", "trigger", "read", "scope", "needs", "cost", "state", "summary");
    for (const struct method *m = method_presets; m->name; m++) {
        int err = parse(m->name, m->unbudgeted ? 0 : budget, &r, &d);
        if (err)
            return err;
        method_needs(&r.m, needs, sizeof needs);
        printf("%-18s %-10s %-18s %-16s %-8s %-11s %-10s %-19s %-21s %5.0f  %s\n", m->name,
               m->admission->name, m->score ? m->score->name : "none", m->allocation->name,
               m->trigger->name, m->read->name, method_one_set_for(&r.m, &r.p), needs,
               method_cost(m, &r.p), r.state, m->summary);
    }
    printf("\ncost: operations of one decision about a KV head, up to a constant; n entries, g "
           "query heads, w rows of the\nwindow, D channels, p entries in a page, d numbers in a "
           "block gate's vector.  state: bytes per entry in\naddition to its key and value (g = "
           "%d, D = %d, B = %d).\n'kvfate methods NAME' explains a row; docs/reference/methods.md "
           "has the equations.\n",
           GROUP, HEAD_DIM, budget ? budget : DEFAULT_BUDGET);
    return KVF_OK;
}

static void print_option(const struct method_option *o, const struct method_params *p)
{
    if (o->words) {
        printf("  %-10s %-10s ", o->key, method_option_word(o, p));
        for (int i = 0; o->words[i]; i++)
            printf("%s%s", i ? " | " : "", o->words[i]);
        printf("\n");
        return;
    }
    printf("  %-10s %-10.12g %s %.12g .. %.12g\n", o->key, method_option_value(o, p),
           o->kind == OPTION_REAL ? "real" : "integer", o->min, o->max);
}

static void print_part(const char *kind, const char *name, const char *summary)
{
    printf("%-11s %s%s%s\n", kind, name, summary ? ": " : "", summary ? summary : "");
}

static void print_row(const struct row *r)
{
    const struct method *m = &r->m;
    char needs[80];
    int n = 0;
    method_needs(&r->m, needs, sizeof needs);
    printf("%s: %s\n", m->name, m->summary);
    print_part("source", m->source, NULL);
    if (m->aliases)
        print_part("aliases", m->aliases, NULL);
    print_part("admission", m->admission->name, m->admission->summary);
    print_part("score", m->score ? m->score->name : "none", m->score ? m->score->summary : NULL);
    print_part("allocation", m->allocation->name, m->allocation->summary);
    print_part("trigger", m->trigger->name, m->trigger->summary);
    print_part("read", m->read->name, m->read->summary);
    print_part("scope", method_one_set_for(m, &r->p), NULL);
    print_part("needs", needs, NULL);
    print_part("gates", r->gates ? r->gates : "none", NULL);
    print_part("code", m->code ? m->code : "paper and code agree", NULL);
    printf("%-11s O(%s) per %s of a KV head\n", "cost", method_cost(m, &r->p),
           m->score || m->read->all ? "decision" : "query");
    printf("%-11s %.0f bytes per entry of a KV head, with %d query heads of %d channels\n", "state",
           r->state, GROUP, HEAD_DIM);
    if (r->p.budget)
        printf("\noptions, with their values at --budget %d\n", r->p.budget);
    else
        printf("\noptions, with their values%s\n",
               method_needs_budget(m) || m->unbudgeted ? "" : " without a budget");
    for (const struct method_option *o = method_options; o->key; o++)
        if (method_option_counts(o, m)) {
            print_option(o, &r->p);
            n++;
        }
    if (n == 0)
        printf("  none\n");
}

struct request {
    int64_t budget;
    bool json;
};

static const struct opt options[] = {
    {OPT_INT, 'B', "budget", offsetof(struct request, budget), "N",
     "the budget for which values are shown", .absent = "256", .min = 1, .max = 1 << 24},
    {OPT_FLAG, 0, "json", offsetof(struct request, json), NULL, "JSON: an array, or one object"},
    {.type = OPT_END},
};

static int cmd_methods(const struct command *self, void *request, int n, char **operand)
{
    struct request *q = request;
    struct row row;
    struct kvf_diag d = {""};
    int err = n ? parse(operand[0], (int)q->budget, &row, &d) : KVF_OK;
    if (!err && q->json)
        err = print_json(n ? &row : NULL, (int)q->budget);
    else if (!err && n)
        print_row(&row);
    else if (!err)
        err = print_table((int)q->budget);
    return command_end(self, err, &d);
}

const struct command command_methods = {
    .name = "methods",
    .group = "running",
    .summary = "list the cache methods, or describe one",
    .example = "kvfate methods snapkv -B 128",
    .operands = {"[NAME[:key=value,...]]", "method", 0, 1},
    .options = options,
    .request_bytes = sizeof(struct request),
    .run = cmd_methods,
};
