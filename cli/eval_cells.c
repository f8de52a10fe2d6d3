/* eval_cells.c - parses the methods and budgets that `kvfate eval` compares, and opens their
 * gates. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "cli/eval_job.h"
#include "cli/models.h"
#include "engine/gate/head_table.h"

enum { MOST_BUDGETS = 64 };

/* Returns the length of the first method of "A,B:key=value,key=value,C". A piece that has "="
 * before any ":" belongs to the preceding method. */
static size_t method_length(const char *s)
{
    size_t n = strcspn(s, ",");
    while (s[n]) {
        const char *piece = s + n + 1;
        size_t key = strcspn(piece, "=:,");
        if (piece[key] != '=')
            break;
        n += 1 + strcspn(piece, ",");
    }
    return n;
}

static int parse_budgets(const char *s, struct budget *budget, int *n, struct kvf_diag *d)
{
    for (*n = 0;; s += *s == ',') {
        char part[32];
        size_t len = strcspn(s, ",");
        if (*n == MOST_BUDGETS)
            return kvf_fail(d, KVF_E_ARG, "--budgets: more than %d budgets", MOST_BUDGETS);
        if (len < sizeof part) {
            memcpy(part, s, len);
            part[len] = 0;
        }
        if (len >= sizeof part || !budget_parse(part, &budget[*n]))
            return kvf_fail(d, KVF_E_ARG, "--budgets '%.*s': %s; commas separate budgets", (int)len,
                            s, budget_advice(len < sizeof part ? part : ""));
        ++*n;
        s += len;
        if (!*s)
            return KVF_OK;
    }
}

/* Parses a method with a budget, or without one if the method takes none. */
static int parse_cell(const char *label, const struct budget *budget, struct eval_cell *c,
                      struct kvf_diag *d)
{
    struct kvf_diag unused;
    int err = method_parse_for(label, budget, &(struct budget_prompt){0}, &c->row, &c->params, d);
    c->budget = *budget;
    if (err == KVF_E_ARG && method_parse(label, 0, &c->row, &c->params, &unused) == KVF_OK
        && c->row.unbudgeted)
        err = KVF_OK;
    c->label = label;
    if (!err && c->params.cut == CUT_TURN)
        err = kvf_fail(
            d, KVF_E_ARG,
            "cut=turn needs the turns of a chat. 'kvfate run' and 'kvfate generate' have them with "
            "--method, and --chat or \"messages\" of --jsonl. Here the prompt is one turn: give "
            "cut=prompt");
    if (err)
        kvf_diag_prefix(d, "--methods '%.200s'", label);
    return err;
}

/* Adds a cell for a method at each budget, without duplicates. A method without a budget gets one
 * cell. */
static int add_method(struct eval_job *j, const char *label, const struct budget *budget,
                      int n_budgets, struct kvf_diag *d)
{
    for (int i = 0; i < n_budgets; i++) {
        struct eval_cell c = {0};
        int err = parse_cell(label, &budget[i], &c, d);
        if (err)
            return err;
        bool again = false;
        for (int k = 0; k < j->n; k++)
            again |= strcmp(j->cell[k].label, label) == 0
                     && j->cell[k].params.budget == c.params.budget
                     && j->cell[k].params.part == c.params.part;
        if (!again)
            j->cell[j->n++] = c;
    }
    return KVF_OK;
}

static int parse_methods(struct eval_job *j, const char *list, const struct budget *budget,
                         int n_budgets, struct kvf_diag *d)
{
    size_t most = 1, at = 0;
    for (const char *s = list; *s; s++)
        most += *s == ',';
    j->label = mem_alloc(most, EVAL_LABEL);
    j->cell = MEM_NEW(struct eval_cell, most * (size_t)n_budgets);
    if (!j->label || !j->cell)
        return KVF_E_NOMEM;
    for (const char *s = list;; s++) {
        size_t len = method_length(s);
        if (len >= EVAL_LABEL)
            return kvf_fail(d, KVF_E_ARG, "--methods: '%.40s...' is too long", s);
        memcpy(j->label[at], s, len);
        int err = add_method(j, j->label[at++], budget, n_budgets, d);
        if (err)
            return err;
        s += len;
        if (!*s)
            return KVF_OK;
    }
}

/* Lists all presets by name. Presets that need more than a name and a budget are appended to
 * j->left_out. */
static int all_methods(struct eval_job *j, const struct budget *budget, int n_budgets,
                       struct buf *list)
{
    struct kvf_diag unused;
    struct eval_cell c;
    for (const struct method *m = method_presets; m->name; m++) {
        int err = KVF_OK;
        for (int i = 0; !err && i < n_budgets; i++)
            err = parse_cell(m->name, &budget[i], &c, &unused);
        if (err)
            buf_printf(&j->left_out, " %s", m->name);
        else
            buf_printf(list, "%s%s", list->len ? "," : "", m->name);
    }
    return list->err;
}

int eval_parse_cells(struct eval_job *j, struct kvf_diag *d)
{
    struct budget budget[MOST_BUDGETS];
    struct buf list = {0};
    int n = 0, err = parse_budgets(j->budgets, budget, &n, d);
    if (!err && strcmp(j->methods, "all") == 0)
        err = all_methods(j, budget, n, &list);
    else
        buf_str(&list, j->methods);
    if (!err)
        err = list.err;
    if (!err)
        err = parse_methods(j, list.data ? list.data : "", budget, n, d);
    buf_finish(&list);
    bool some = strcmp(j->budgets, EVAL_BUDGETS) == 0;
    for (int i = 0; !err && i < j->n; i++)
        some |= j->cell[i].params.budget > 0;
    return err || some
               ? err
               : kvf_fail(d, KVF_E_ARG,
                          "--budgets %.80s: no method of --methods takes a budget; leave it "
                          "out",
                          j->budgets);
}

/* Assigns shipped gates to a cell. The cells that use one file share its gates. */
static int assign_shipped(struct eval_job *j, struct eval_cell *c, struct kvf_diag *d)
{
    struct gates *g = NULL;
    int n = j->n_shipped;
    if (n == EVAL_SHIPPED)
        return KVF_OK;
    int err = model_shipped_gates(j->eval.engine, &c->row, &g, d);
    for (int i = 0; g && i < n; i++)
        if (strcmp(gates_path(g), gates_path(j->shipped[i])) == 0) {
            gates_close(g);
            c->gates = j->shipped[i];
            return KVF_OK;
        }
    if (g)
        c->gates = j->shipped[j->n_shipped++] = g;
    return err;
}

/* Rejects two --gates files of one kind, because the choice between them would be arbitrary. */
static int check_kinds(const struct eval_job *j, struct kvf_diag *d)
{
    for (int i = 0; i < j->gates_file.n; i++)
        for (int k = 0; k < i; k++)
            if (gates_kind(j->gates[i]) == gates_kind(j->gates[k]))
                return kvf_fail(d, KVF_E_ARG,
                                "--gates %s and %s both have %s gates; give one file of each kind",
                                gates_path(j->gates[k]), gates_path(j->gates[i]),
                                gates_kind_name(gates_kind(j->gates[i])));
    return KVF_OK;
}

/* Returns the number of tokens of the longest text. */
static int longest_text(const struct eval_job *j)
{
    int n = j->data.n ? (int)(j->prompt + j->score) : 0;
    for (int64_t i = 0; j->input && i < j->docs; i++) {
        const struct eval_text *x = &j->input[i].text;
        n = x->prompt + x->score > n ? x->prompt + x->score : n;
    }
    return n;
}

/* Assigns gates to a cell, and checks that its method has all its inputs. */
static int assign_gates(struct eval_job *j, struct eval_cell *c, struct kvf_diag *d)
{
    const struct model_config *m = &j->eval.engine->config;
    int length = longest_text(j);
    for (int i = 0; i < j->gates_file.n; i++)
        if (method_gates(&c->row) >> gates_kind(j->gates[i]) & 1)
            c->gates = j->gates[i];
    int err = method_gates(&c->row) && !c->gates ? assign_shipped(j, c, d) : KVF_OK;
    if (err)
        return err;
    if (c->row.allocation->heads)
        c->head_table = j->head_table;
    struct method_inputs in = {
        .gates = c->gates, .head_table = c->head_table, .model = m, .length = length};
    if (c->gates && gates_positions(c->gates) < length)
        return kvf_fail(d, KVF_E_ARG, "--gates %s has values for %d positions, and texts have %d",
                        gates_path(c->gates), (int)gates_positions(c->gates), length);
    return method_check_inputs(&c->row, &c->params, &in, d);
}

/* Prints a note for each file of --gates that no cell uses. This is not an error, because a study
 * passes all its gates to every part. */
static void note_unused(const struct eval_job *j)
{
    for (int i = 0; i < j->gates_file.n; i++) {
        bool used = false;
        for (int k = 0; k < j->n; k++)
            used |= j->cell[k].gates == j->gates[i];
        if (!used)
            fprintf(stderr, "note: --gates %s: no method of --methods uses them\n",
                    gates_path(j->gates[i]));
    }
}

/* Opens the table of --head-budgets. Rejects it if no method takes budgets from it. */
static int open_heads(struct eval_job *j, struct kvf_diag *d)
{
    bool taken = false;
    for (int i = 0; i < j->n; i++)
        taken |= j->cell[i].row.allocation->heads != NULL;
    if (!j->head_budgets)
        return KVF_OK;
    if (!taken)
        return kvf_fail(d, KVF_E_ARG,
                        "--head-budgets %s: no method of --methods has allocation=file",
                        j->head_budgets);
    return head_table_open(j->head_budgets, &j->head_table, d);
}

int eval_open_gates(struct eval_job *j, struct kvf_diag *d)
{
    bool all = strcmp(j->methods, "all") == 0;
    int n = 0;
    j->gates = MEM_NEW(struct gates *, (size_t)j->gates_file.n);
    int err = j->gates ? KVF_OK : KVF_E_NOMEM;
    for (int i = 0; !err && i < j->gates_file.n; i++)
        err = model_gates(j->eval.engine, j->gates_file.item[i], &j->gates[i], d);
    if (!err)
        err = check_kinds(j, d);
    if (!err)
        err = open_heads(j, d);
    for (int i = 0; !err && i < j->n; i++) {
        struct eval_cell c = j->cell[i];
        err = assign_gates(j, &c, d);
        if (!err) {
            j->cell[n++] = c;
        } else if (all && err == KVF_E_ARG) {
            if (i == 0 || j->cell[i - 1].label != c.label)
                buf_printf(&j->left_out, " %s", c.label);
            err = KVF_OK;
        }
    }
    j->n = n;
    if (!err)
        note_unused(j);
    return err;
}

void eval_close_cells(struct eval_job *j)
{
    buf_finish(&j->left_out);
    for (int i = 0; j->gates && i < j->gates_file.n; i++)
        gates_close(j->gates[i]);
    mem_free(j->gates);
    head_table_close(j->head_table);
    for (int i = 0; i < j->n_shipped; i++)
        gates_close(j->shipped[i]);
    mem_free(j->cell);
    mem_free(j->label);
}
