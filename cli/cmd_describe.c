/* cmd_describe.c - `kvfate list all` prints all declarations of the program as JSON. Tools make
 * the documentation from it and check it. */
#include <stdio.h>
#include <string.h>

#include <kvf/version.h>

#include "analyzers/analyzer.h"
#include "analyzers/columns.h"
#include "base/json.h"
#include "cli/commands.h"
#include "cli/methods_json.h"
#include "cli/models_json.h"
#include "engine/probe/probes.h"
#include "engine/probe/recorder.h"
#include "render/figure.h"

struct request {
    bool json;
};

static const struct opt options[] = {
    {OPT_FLAG, 0, "json", offsetof(struct request, json), NULL,
     "JSON, which is printed without this option too"},
    {.type = OPT_END},
};

static void put_flag(struct buf *b, const char *key, bool value)
{
    json_put_key(b, key);
    buf_str(b, value ? "true" : "false");
}

static void put_texts(struct buf *b, const char *key, const char *const *text)
{
    json_put_key(b, key);
    buf_char(b, '[');
    for (int i = 0; text && text[i]; i++) {
        if (i)
            buf_char(b, ',');
        json_put_str(b, text[i], strlen(text[i]));
    }
    buf_char(b, ']');
}

/* Begins the i-th object of an array. */
static void begin(struct buf *b, int i)
{
    buf_str(b, i ? ",\n {" : "\n {");
}

static void put_operands(struct buf *b, const struct operands *o)
{
    json_put_key(b, "operands");
    buf_char(b, '{');
    json_put_member_str(b, "shown", o->shown ? o->shown : "");
    json_put_member_str(b, "kind", o->kind ? o->kind : "");
    json_put_member_num(b, "least", o->min);
    json_put_member_num(b, "most", o->max);
    buf_char(b, '}');
}

static void put_command(struct buf *b, const struct command *c)
{
    struct command_options o;
    struct buf usage = {0};
    command_options(c, c->analyzer, &o);
    command_usage(c, &usage);
    json_put_member_str(b, "name", c->key);
    json_put_member_str(b, "words", c->name);
    json_put_member_str(b, "group", c->group);
    json_put_member_str(b, "summary", c->summary);
    json_put_member_str(b, "usage", usage.data ? usage.data : "");
    json_put_member_str(b, "example", c->example);
    json_put_member_str(b, "needs", c->needs ? c->needs : "");
    put_flag(b, "analysis", c->analyzer != NULL);
    put_operands(b, &c->operands);
    json_put_key(b, "options");
    opt_json(o.list, b);
    json_put_key(b, "exit");
    for (int i = 0; command_exit(c, i).status; i++) {
        buf_str(b, i ? ",{" : "[{");
        json_put_member_str(b, "status", command_exit(c, i).status);
        json_put_member_str(b, "when", command_exit(c, i).when);
        buf_char(b, '}');
    }
    buf_str(b, "]}");
    buf_finish(&usage);
}

/* Appends an object with a member for each row of a table of cli/groups.h. */
static void put_named(struct buf *b, const char *key, const struct named_text *t)
{
    json_put_key(b, key);
    buf_char(b, '{');
    for (; t->name; t++)
        json_put_member_str(b, t->name, t->text);
    buf_char(b, '}');
}

static void put_commands(struct buf *b)
{
    struct command c;
    json_put_key(b, "commands");
    buf_char(b, '[');
    for (int i = 0; command_at(i, &c); i++) {
        begin(b, i);
        put_command(b, &c);
    }
    buf_char(b, ']');
}

/* Appends the measures of an analysis, which define how `kvfate corpus` sums its tables over
 * documents. */
static void put_measures(struct buf *b, const struct analyzer_measure *m)
{
    json_put_key(b, "measures");
    buf_char(b, '[');
    for (int i = 0; m && m[i].value; i++) {
        begin(b, i);
        json_put_member_str(b, "value", m[i].value);
        if (m[i].numerator)
            json_put_member_str(b, "numerator", m[i].numerator);
        if (m[i].denominator)
            json_put_member_str(b, "denominator", m[i].denominator);
        if (m[i].product)
            put_flag(b, "product", true);
        if (m[i].bins)
            put_flag(b, "bins", true);
        if (m[i].optional)
            put_flag(b, "optional", true);
        if (m[i].half_life)
            json_put_member_str(b, "half_life", m[i].half_life);
        buf_char(b, '}');
    }
    buf_char(b, ']');
}

/* Appends the columns of a trace that an analysis reads. */
static void put_uses(struct buf *b, const struct column_use *c)
{
    static const char *const needs[] = {"always", "can lack", "helps", "asked"};
    json_put_key(b, "columns");
    buf_char(b, '[');
    for (int i = 0; c && c[i].name; i++) {
        begin(b, i);
        json_put_member_str(b, "name", c[i].name);
        json_put_member_str(b, "need", needs[c[i].need]);
        json_put_member_str(b, "note", c[i].note ? c[i].note : "");
        buf_char(b, '}');
    }
    buf_char(b, ']');
}

/* Appends for each column the option or importer that supplies it. */
static void put_supplies(struct buf *b)
{
    json_put_key(b, "columns");
    buf_char(b, '[');
    for (int i = 0; column_supply_at(i)->name; i++) {
        const struct column_supply *s = column_supply_at(i);
        begin(b, i);
        json_put_member_str(b, "name", s->name);
        json_put_member_str(b, "flag", s->flag ? s->flag : "");
        json_put_member_str(b, "import", s->import ? s->import : "");
        buf_char(b, '}');
    }
    buf_char(b, ']');
}

static void put_analyzer(struct buf *b, const struct analyzer *a)
{
    static const struct opt none[] = {{.type = OPT_END}};
    const char *figures[64] = {NULL};
    int n = 0;
    for (int f = 0; figure_table[f] && n < 63; f++)
        if (figure_draws(figure_table[f], a->name))
            figures[n++] = figure_table[f]->name;
    json_put_member_str(b, "name", a->name);
    json_put_member_str(b, "summary", a->summary);
    json_put_member_num(b, "min_traces", a->min_traces ? a->min_traces : 1);
    json_put_member_num(b, "max_traces", a->max_traces ? a->max_traces : 1);
    put_flag(b, "pools", a->pool != NULL);
    put_texts(b, "pool_keys", a->pool ? a->pool->keys : NULL);
    put_measures(b, a->pool ? a->pool->measures : NULL);
    put_texts(b, "figures", figures);
    put_uses(b, a->columns);
    json_put_key(b, "options");
    opt_json(a->options ? a->options : none, b);
    buf_char(b, '}');
}

static void put_analyzers(struct buf *b)
{
    json_put_key(b, "analyzers");
    buf_char(b, '[');
    for (int i = 0; analyzer_table[i]; i++) {
        begin(b, i);
        put_analyzer(b, analyzer_table[i]);
    }
    buf_char(b, ']');
}

/* Appends the names of the probe sets (--probes, --shadow) that contain this probe. */
static void put_sets(struct buf *b, const struct probe *p)
{
    const char *sets[5] = {NULL};
    int n = 0;
    if (!p->shadow && (p->in_auto || !(p->by_name || p->full_only)))
        sets[n++] = PROBES_AUTO;
    if (!p->shadow && !p->by_name) {
        if (p->lean)
            sets[n++] = "lean";
        if (!p->full_only)
            sets[n++] = "paper";
        sets[n++] = "full";
    }
    put_texts(b, "sets", sets);
    if (p->shadow)
        json_put_member_str(b, "shadow", p->shadow);
}

static void put_probes(struct buf *b)
{
    json_put_key(b, "probes");
    buf_char(b, '[');
    for (int i = 0; probe_table[i]; i++) {
        begin(b, i);
        json_put_member_str(b, "name", probe_table[i]->name);
        json_put_member_str(b, "summary", probe_table[i]->summary);
        put_sets(b, probe_table[i]);
        buf_char(b, '}');
    }
    buf_char(b, ']');
}

static int cmd_describe(const struct command *self, void *request, int n, char **operand)
{
    struct buf b = {0};
    struct kvf_diag d = {""};
    (void)request;
    (void)n;
    (void)operand;
    buf_char(&b, '{');
    json_put_member_str(&b, "version", kvf_version());
    put_named(&b, "groups", group_table);
    put_named(&b, "tops", top_table);
    put_commands(&b);
    put_analyzers(&b);
    json_put_key(&b, "figures");
    figures_json(&b);
    put_probes(&b);
    put_supplies(&b);
    json_put_key(&b, "methods");
    int err = methods_json(&b, 0);
    json_put_key(&b, "models");
    models_json(&b);
    buf_str(&b, "}\n");
    if (!err)
        err = b.err;
    if (!err)
        fwrite(b.data, 1, b.len, stdout);
    buf_finish(&b);
    return command_end(self, err, &d);
}

const struct command command_describe = {
    .name = "describe",
    .group = "running",
    .summary = "print all commands, options, analyses, figures, probes and methods as JSON",
    .example = "kvfate list all --json",
    .options = options,
    .request_bytes = sizeof(struct request),
    .run = cmd_describe,
};
