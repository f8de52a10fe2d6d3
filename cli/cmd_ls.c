/* cmd_ls.c - `kvfate trace ls` lists the traces of folders, one row each, optionally selected by
 * conditions. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "base/progress.h"
#include "base/table.h"
#include "cli/commands.h"
#include "cli/corpus_traces.h"
#include "base/files.h"
#include "cli/output.h"
#include "cli/shown.h"
#include "cli/where.h"

#define UNFINISHED ".unfinished"

struct job {
    /* options */
    const char *out, *where;
    bool json, paths;

    struct where *chosen;
    struct corpus_traces at; /* traces to list */
    struct trace_facts *row; /* [n_rows] facts of the selected traces, without headers */
    size_t n_rows, row_cap;
    size_t unreadable;
};

static const struct opt options[] = {
    {OPT_STR, 'w', "where", offsetof(struct job, where), "CONDITIONS",
     "only traces that meet these conditions: 'method=trimkv budget<=128'", .absent = "all"},
    {OPT_FLAG, 0, "paths", offsetof(struct job, paths), NULL,
     "print only the names, one per line, for @LIST of other commands"},
    {OPT_STR, 'o', "output", offsetof(struct job, out), "OUT",
     "tsv, csv, json, npz or sqlite by extension; - = TSV"},
    {OPT_FLAG, 0, "json", offsetof(struct job, json), NULL, "the table as JSON to stdout"},
    {.type = OPT_END},
};

/* Adds an unfinished trace by its final name, by which kvf_open() finds it. Skips it if a trace
 * has this name already. */
static int add_unfinished(void *ctx, const char *path)
{
    struct stat st;
    char *name = mem_strdup(path);
    if (!name)
        return KVF_E_NOMEM;
    name[strlen(name) - strlen(UNFINISHED)] = 0;
    int err = stat(name, &st) == 0 ? KVF_OK : traces_add_file(ctx, name);
    mem_free(name);
    return err;
}

/* Adds the traces of an operand. For a folder, adds its unfinished traces, too. */
static int add_operand(struct job *j, const char *operand, struct kvf_diag *d)
{
    struct stat st;
    bool folder = stat(operand, &st) == 0 && S_ISDIR(st.st_mode);
    int err = traces_add(&j->at, operand, d);
    if (!err && folder)
        err = files_each(operand, ".kvf" UNFINISHED, add_unfinished, &j->at, d);
    return err;
}

/* Moves the facts into a new row; frees them on failure. Returns KVF_OK or KVF_E_NOMEM. */
static int add_row(struct job *j, struct trace_facts *f)
{
    facts_trim(f);
    if (j->n_rows == j->row_cap) {
        size_t cap = j->row_cap ? 2 * j->row_cap : 64;
        struct trace_facts *grown = mem_grow(j->row, j->n_rows, cap, sizeof *grown);
        if (!grown) {
            facts_free(f);
            return KVF_E_NOMEM;
        }
        j->row = grown;
        j->row_cap = cap;
    }
    j->row[j->n_rows++] = *f;
    return KVF_OK;
}

/* Adds a row for the trace at `path` if the conditions select it. A file that is not a trace is
 * reported and listed. Returns an error only if memory is exhausted. */
static int list_trace(const struct command *self, struct job *j, const char *path)
{
    struct trace_facts f = {0};
    struct kvf_trace *t = NULL;
    struct kvf_diag d = {""};
    int err = kvf_open(path, KVF_OPEN_TAIL, &t, &d);
    if (!err) {
        err = facts_read(t, &f);
    } else if (err != KVF_E_NOMEM) {
        command_print_error(self, err, &d);
        j->unreadable++;
        err = facts_unreadable(path, &f);
    }
    kvf_close(t);
    if (err)
        return err;
    if (where_holds(j->chosen, &f))
        return add_row(j, &f);
    facts_free(&f);
    return KVF_OK;
}

static int list_traces(const struct command *self, struct job *j)
{
    struct progress bar;
    int err = KVF_OK;
    progress_start(&bar, "ls", "traces", (int64_t)j->at.n);
    for (size_t i = 0; !err && i < j->at.n; i++) {
        err = list_trace(self, j, j->at.trace[i].path);
        progress_update(&bar, (int64_t)i + 1);
    }
    progress_clear(&bar);
    return err;
}

/* ---- output */

static int add_column(struct table *t, const struct job *j, int fact)
{
    const struct fact *a = &fact_table[fact];
    const char **text = MEM_NEW(const char *, j->n_rows);
    int64_t *number = MEM_NEW(int64_t, j->n_rows);
    double *real = MEM_NEW(double, j->n_rows);
    int err = text && number && real ? KVF_OK : KVF_E_NOMEM;
    for (size_t i = 0; !err && i < j->n_rows; i++) {
        text[i] = j->row[i].text[fact];
        number[i] = j->row[i].number[fact];
        real[i] = j->row[i].real[fact];
    }
    if (!err && a->type == FACT_TEXT)
        table_dense_str(t, a->name, a->unit, text);
    else if (!err && a->type == FACT_WHOLE)
        table_dense_int(t, a->name, a->unit, number);
    else if (!err)
        table_dense_real(t, a->name, a->unit, real);
    mem_free_all((void *)text, number, real);
    return err;
}

static struct table *as_table(const struct job *j)
{
    struct table *t = table_create("traces", (int64_t)j->n_rows);
    int err = t ? KVF_OK : KVF_E_NOMEM;
    for (int i = 0; !err && i < FACTS; i++)
        err = add_column(t, j, i);
    if (!err && j->where)
        table_meta_str(t, "where", j->where);
    return table_made(t, err);
}

/* Appends a fact as the list shows it: "-" if it is missing or empty. */
static void put_fact(struct buf *b, const struct trace_facts *f, int fact)
{
    enum fact_type type = fact_table[fact].type;
    if (type == FACT_TEXT && f->text[fact][0])
        buf_str(b, shown_name(f->text[fact]).text);
    else if (type == FACT_WHOLE && f->number[fact] >= 0)
        buf_printf(b, "%lld", (long long)f->number[fact]);
    else
        buf_char(b, '-');
}

/* Appends the name of a fact in row 0, and the fact of trace i in row i + 1. */
static void put_cell(struct buf *b, const struct job *j, size_t row, int fact)
{
    if (row == 0)
        buf_str(b, fact_table[fact].name);
    else
        put_fact(b, &j->row[row - 1], fact);
}

/* Prints the main facts in aligned columns; the protocol only if a trace has one. */
static int print(const struct job *j)
{
    static const int shown[] = {FACT_STATE,    FACT_MODEL,  FACT_METHOD, FACT_BUDGET,
                                FACT_PROTOCOL, FACT_TOKENS, FACT_BYTES,  FACT_TRACE};
    enum { SHOWN = sizeof shown / sizeof *shown };
    struct buf b = {0}, cell = {0};
    size_t width[SHOWN] = {0};
    bool protocols = false;
    for (size_t i = 0; i <= j->n_rows; i++)
        for (int k = 0; k + 1 < SHOWN; k++) {
            buf_clear(&cell);
            put_cell(&cell, j, i, shown[k]);
            width[k] = cell.len > width[k] ? cell.len : width[k];
            protocols |= i > 0 && shown[k] == FACT_PROTOCOL && j->row[i - 1].text[shown[k]][0];
        }
    for (size_t i = 0; i <= j->n_rows; i++) {
        for (int k = 0; k < SHOWN; k++) {
            bool text = fact_table[shown[k]].type == FACT_TEXT;
            if (shown[k] == FACT_PROTOCOL && !protocols)
                continue;
            buf_clear(&cell);
            put_cell(&cell, j, i, shown[k]);
            buf_printf(&b, text ? "%s%-*s" : "%s%*s", k ? "  " : "", (int)width[k],
                       cell.data ? cell.data : "");
        }
        buf_char(&b, '\n');
    }
    buf_printf(&b, "%zu of %zu traces\n", j->n_rows, j->at.n);
    int err = b.err ? b.err : cell.err;
    if (!err)
        shown_print(b.data, b.len);
    buf_finish(&cell);
    buf_finish(&b);
    return err;
}

static int show(const struct job *j, struct kvf_diag *d)
{
    struct output to = {.path = j->out, .json = j->json};
    struct table *t = NULL;
    int err = KVF_OK;
    for (size_t i = 0; j->paths && i < j->n_rows; i++) {
        const char *name = j->row[i].text[FACT_TRACE];
        shown_piece(name, strlen(name));
        putchar('\n');
    }
    if (j->out || j->json) {
        t = as_table(j);
        err = t ? output_table(&to, t, d) : KVF_E_NOMEM;
        table_destroy(t);
    } else if (!j->paths) {
        err = print(j);
    }
    return err;
}

static int prepare(struct job *j, int n, char **operand, struct kvf_diag *d)
{
    int err = output_check(j->out, "traces", d);
    if (!err && j->paths && (j->json || (j->out && strcmp(j->out, "-") == 0)))
        err = kvf_fail(d, KVF_E_ARG, "--paths and a table would both go to the standard output");
    if (!err && j->where)
        err = where_parse(j->where, &j->chosen, d);
    if (!err && n == 0)
        err = add_operand(j, ".", d);
    for (int i = 0; !err && i < n; i++)
        err = add_operand(j, operand[i], d);
    for (size_t i = 0; !err && i < j->at.n; i++)
        err = files_keep(j->out, &j->at.trace[i].path, 1, d);
    return err;
}

static void free_job(struct job *j)
{
    traces_free(&j->at);
    for (size_t i = 0; i < j->n_rows; i++)
        facts_free(&j->row[i]);
    mem_free(j->row);
    where_free(j->chosen);
}

static int cmd_ls(const struct command *self, void *request, int n, char **operand)
{
    struct job *j = request;
    struct kvf_diag d = {""};
    int err = prepare(j, n, operand, &d);
    if (!err)
        err = list_traces(self, j);
    if (!err)
        err = show(j, &d);
    int status = command_end(self, err, &d);
    if (status == EXIT_OK && j->unreadable)
        status = EXIT_LOST;
    free_job(j);
    return status;
}

static const struct exit_status exits[] = {
    {"3", "The traces were listed, but a file could not be read as a trace: its state is "
          "\"unreadable\", and a line on the standard error gives the reason."},
    {NULL, NULL},
};

const struct command command_ls = {
    .name = "ls",
    .group = "files",
    .summary = "list traces in folders, with filters",
    .example = "kvfate trace ls --where 'method=full tokens>=8'",
    .operands = {"[TRACE|FOLDER|@LIST...]", "trace", 0, -1},
    .options = options,
    .request_bytes = sizeof(struct job),
    .exits = exits,
    .run = cmd_ls,
};
