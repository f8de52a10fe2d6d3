/* jsonl.c - reads a file of prompts, and loops over its lines. */
#include "cli/jsonl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/progress.h"
#include "base/replace.h"
#include "base/text_kind.h"
#include "base/files.h"
#include "cli/signals.h"

enum { MOST_LINES = 1 << 20 };
static const size_t MOST_BYTES = (size_t)1 << 30;
static const double MOST_TOKENS = 1 << 24, MOST_SEED = 9e15;

const struct opt jsonl_options[] = {
    {OPT_STR, 0, "jsonl", offsetof(struct jsonl, file), "FILE",
     "many prompts, one JSON object a line, with one load of the model"},
    {OPT_STR, 0, "shard", offsetof(struct jsonl, part), "I/N",
     "of --jsonl every N-th line from the I-th on, from 1/N to N/N"},
    {OPT_INT, 0, "together", offsetof(struct jsonl, together), "N",
     "lines of --jsonl that are computed together", .absent = "16", .min = 1, .max = 64},
    {OPT_INT, 0, "room", offsetof(struct jsonl, room), "GIB",
     "memory limit for the caches and buffers of these lines",
     .absent = "1; with a device half of the machine's", .min = 1, .max = 1 << 20},
    {.type = OPT_END},
};

/* ---- one line */

static bool is_safe_name(const char *s)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                  "0123456789-_.";
    size_t n = strspn(s, letters);
    return s[n] == 0 && n >= 1 && n <= JSONL_ID && s[0] != '.';
}

static int parse_id(struct jsonl_line *x, const struct json *id, struct kvf_diag *d)
{
    const char *text = json_str(id, NULL);
    if (!id) {
        snprintf(x->id, sizeof x->id, "%06d", x->number);
        return KVF_OK;
    }
    if (!text)
        return kvf_fail(d, KVF_E_FORMAT, "\"id\" is no text");
    if (!is_safe_name(text))
        return kvf_fail(d, KVF_E_FORMAT,
                        "the id '%.120s' is no safe name of a file; it needs 1 to %d letters, "
                        "digits, '-', '_' or '.', and no dot at its beginning",
                        text, JSONL_ID);
    snprintf(x->id, sizeof x->id, "%s", text);
    return KVF_OK;
}

/* Reads an integer from 0 to `most`; -1 if the member is absent. */
static int parse_number(const struct json *root, const char *key, double most, int64_t *ret,
                        struct kvf_diag *d)
{
    const struct json *member = json_get(root, key);
    int64_t v = json_int(member, -1);
    if (member && (v < 0 || (double)v > most))
        return kvf_fail(d, KVF_E_FORMAT, "\"%s\" is not an integer from 0 to %.0f", key, most);
    *ret = v;
    return KVF_OK;
}

/* Copies the line for the chat template, after checking its messages. */
static int parse_messages(struct jsonl_line *x, const char *s, size_t n, struct kvf_diag *d)
{
    struct chat_json c;
    int err = chat_json_open(s, n, true, &c, d);
    if (err)
        return err;
    chat_json_close(&c);
    x->messages = MEM_NEW(char, n + 1);
    if (!x->messages)
        return KVF_E_NOMEM;
    memcpy(x->messages, s, n);
    return KVF_OK;
}

static int parse_prompt(struct jsonl_line *x, const char *s, size_t n, struct kvf_diag *d)
{
    static const char *const kinds[] = {"prompt", "text", "context", "messages", "ids"};
    enum { TEXTS = 3, MESSAGES = 3, IDS = 4, KINDS = 5 };
    const struct json *found[KINDS];
    int some = 0;
    for (int i = 0; i < KINDS; i++) {
        found[i] = json_get(x->root, kinds[i]);
        some += found[i] != NULL;
    }
    if (some != 1)
        return kvf_fail(d, KVF_E_FORMAT,
                        "expected one of \"prompt\", \"messages\", \"text\", \"ids\" and "
                        "\"context\", and there %s",
                        some ? "are several" : "is none");
    for (int i = 0; i < TEXTS; i++)
        if (found[i] && !json_str(found[i], NULL))
            return kvf_fail(d, KVF_E_FORMAT, "\"%s\" is no text", kinds[i]);
    x->prompt = json_str(found[0] ? found[0] : found[2], NULL);
    x->text = json_str(found[1], NULL);
    x->ids = found[IDS];
    if (x->ids && !(json_is_array(x->ids) && json_len(x->ids)))
        return kvf_fail(d, KVF_E_FORMAT, "\"ids\" is no array of token ids, or an empty one");
    if (!found[MESSAGES] && json_get(x->root, "tools"))
        return kvf_fail(d, KVF_E_FORMAT, "\"tools\" requires \"messages\"");
    return found[MESSAGES] ? parse_messages(x, s, n, d) : KVF_OK;
}

/* Checks "question" and "questions", and sets the first question. */
static int parse_question(struct jsonl_line *x, struct kvf_diag *d)
{
    enum { MOST_QUESTIONS = 1000 };
    const struct json *one = json_get(x->root, "question"), *list = json_get(x->root, "questions");
    bool context = json_get(x->root, "context") != NULL, good = !one || json_str(one, "")[0];
    if (one && list)
        return kvf_fail(d, KVF_E_FORMAT, "\"question\" and \"questions\" exclude each other");
    if (context && !one && !list)
        return kvf_fail(d, KVF_E_FORMAT, "\"context\" requires \"question\" or \"questions\"");
    if ((one || list) && !context && !x->text)
        return kvf_fail(d, KVF_E_FORMAT, "\"%s\" requires \"context\" or \"text\"",
                        one ? "question" : "questions");
    int n = list && json_is_array(list) ? json_len(list) : 0;
    good = good && (!list || (n > 0 && n <= MOST_QUESTIONS));
    for (const struct json *m = n ? json_first(list) : NULL; m; m = json_next(m))
        good = good && json_str(m, "")[0];
    if (!good)
        return kvf_fail(d, KVF_E_FORMAT,
                        list ? "\"questions\" is no array of 1 to %d texts that are "
                               "not empty"
                             : "\"question\" is no text, or an empty one",
                        MOST_QUESTIONS);
    if ((one || list) && json_get(x->root, "continuation"))
        return kvf_fail(d, KVF_E_FORMAT, "\"continuation\" and \"question\" exclude each other");
    x->question = json_str(list ? json_first(list) : one, NULL);
    const struct json *join = json_get(x->root, "join");
    x->join = json_str(join, NULL);
    if (join && (!x->join || !context))
        return kvf_fail(d, KVF_E_FORMAT, "\"join\" %s",
                        x->join ? "requires \"context\"" : "is no text");
    return KVF_OK;
}

static int parse_answer_prefix(struct jsonl_line *x, struct kvf_diag *d)
{
    const struct json *member = json_get(x->root, "answer_prefix");
    const struct json *task = json_get(x->root, "task");
    x->answer_prefix = json_str(member, NULL);
    if (member && !x->answer_prefix)
        return kvf_fail(d, KVF_E_FORMAT, "\"answer_prefix\" is no text");
    if (task && !json_is_object(task))
        return kvf_fail(d, KVF_E_FORMAT, "\"task\" is no object");
    return KVF_OK;
}

/* Checks the texts of "until". */
static int parse_until(struct jsonl_line *x, struct kvf_diag *d)
{
    enum { MOST_ENDS = 64 };
    x->until = json_get(x->root, "until");
    bool good = !x->until || (json_is_array(x->until) && json_len(x->until) <= MOST_ENDS);
    for (const struct json *m = good ? json_first(x->until) : NULL; m; m = json_next(m))
        good = good && json_str(m, "")[0];
    return good ? KVF_OK
                : kvf_fail(d, KVF_E_FORMAT,
                           "\"until\" is no array of up to %d texts that are not empty", MOST_ENDS);
}

static int parse_continuation(struct jsonl_line *x, struct kvf_diag *d)
{
    const struct json *member = x->continuation = json_get(x->root, "continuation");
    if (!member)
        return KVF_OK;
    bool array = json_is_array(member) && json_len(member);
    if (x->ids ? !array : !json_str(member, "")[0])
        return kvf_fail(d, KVF_E_FORMAT, "\"continuation\" is no %s, or an empty one",
                        x->ids ? "array of token ids" : "text");
    if (!(x->text || x->ids) || x->question || x->answer_prefix || x->n >= 0 || x->seed >= 0
        || x->until)
        return kvf_fail(d, KVF_E_FORMAT,
                        "\"continuation\" needs \"text\" or \"ids\", and allows only \"id\" in "
                        "addition: no token is sampled");
    return KVF_OK;
}

static int check_keys(const struct json *root, struct kvf_diag *d)
{
    static const char *const known[] = {"id",    "prompt",        "messages", "tools",
                                        "text",  "ids",           "n",        "seed",
                                        "until", "continuation",  "context",  "question",
                                        "join",  "answer_prefix", "task",     "questions"};
    if (!json_is_object(root))
        return kvf_fail(d, KVF_E_FORMAT, "expected a JSON object");
    for (const struct json *m = json_first(root); m; m = json_next(m)) {
        bool found = false;
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            found |= strcmp(json_key(m), known[i]) == 0;
        if (!found)
            return kvf_fail(
                d, KVF_E_FORMAT,
                "unknown key \"%.60s\"; known are id, prompt, messages, tools, text, "
                "ids, n, seed, until, continuation, context, question, questions, join, "
                "answer_prefix and task",
                json_key(m));
    }
    return KVF_OK;
}

static int parse_line(struct jsonl_line *x, const char *s, size_t n, struct kvf_diag *d)
{
    int err = json_parse(s, n, &x->root, d);
    if (!err)
        err = check_keys(x->root, d);
    if (!err)
        err = parse_id(x, json_get(x->root, "id"), d);
    if (!err)
        err = parse_prompt(x, s, n, d);
    if (!err)
        err = parse_number(x->root, "n", MOST_TOKENS, &x->n, d);
    if (!err)
        err = parse_number(x->root, "seed", MOST_SEED, &x->seed, d);
    if (!err)
        err = parse_answer_prefix(x, d);
    if (!err)
        err = parse_until(x, d);
    if (!err)
        err = parse_question(x, d);
    return err ? err : parse_continuation(x, d);
}

int jsonl_ids(const struct json *array, int vocab, int32_t **ret_ids, int *ret_n,
              struct kvf_diag *d)
{
    int n = json_len(array), i = 0;
    int32_t *ids = *ret_ids = MEM_NEW(int32_t, (size_t)n + 1);
    if (!ids)
        return KVF_E_NOMEM;
    for (const struct json *m = json_first(array); m; m = json_next(m)) {
        int64_t id = json_int(m, -1);
        if (id < 0 || id >= vocab)
            return kvf_fail(d, KVF_E_FORMAT,
                            "value %d of an array of ids is no number below the vocabulary's size "
                            "of %d",
                            i + 1, vocab);
        ids[i++] = (int32_t)id;
    }
    *ret_n = n;
    return KVF_OK;
}

/* ---- the file */

static int grow(struct jsonl *b)
{
    if (b->n_lines < b->cap)
        return KVF_OK;
    size_t cap = b->cap ? 2 * b->cap : 64;
    struct jsonl_line *grown = mem_grow(b->line, b->n_lines, cap, sizeof *grown);
    if (!grown)
        return KVF_E_NOMEM;
    b->line = grown;
    b->cap = cap;
    return KVF_OK;
}

/* Makes a line of each question of the last line. */
static int add_questions(struct jsonl *b, struct kvf_diag *d)
{
    struct jsonl_line first = b->line[b->n_lines - 1];
    const struct json *list = json_get(first.root, "questions");
    int i = 0;
    for (const struct json *m = json_first(list); m; m = json_next(m), i++) {
        int err = i > 0 ? grow(b) : KVF_OK;
        if (err)
            return err;
        struct jsonl_line *x = &b->line[i > 0 ? b->n_lines++ : b->n_lines - 1];
        *x = first;
        x->own = i == 0;
        x->more = json_next(m) != NULL;
        x->question = json_str(m, NULL);
        if ((size_t)snprintf(x->id, sizeof x->id, "%.*s-%d", JSONL_ID, first.id, i + 1)
            >= sizeof x->id)
            return kvf_fail(d, KVF_E_FORMAT, "the id '%.120s' leaves no room for -%d", first.id,
                            i + 1);
    }
    return KVF_OK;
}

/* Parses and adds a line of the file, unless it is blank. */
static int add_line(struct jsonl *b, int number, const struct buf *line, struct kvf_diag *d)
{
    size_t mark = 0;
    if (line->err)
        return kvf_fail(d, line->err, "%s: line %d: over %d MiB", b->file, number, JSON_MOST >> 20);
    int err = number == 1 && line->len ? text_kind_check(b->file, line->data, line->len, &mark, d)
                                       : KVF_OK;
    if (err)
        return err;
    const char *s = line->data ? line->data + mark : "";
    size_t n = line->len - mark;
    if (strspn(s, " \t\r") >= n)
        return KVF_OK;
    err = grow(b);
    if (err)
        return err;
    struct jsonl_line *x = &b->line[b->n_lines++];
    *x = (struct jsonl_line){.number = number, .own = true};
    err = parse_line(x, s, n, d);
    if (!err && json_get(x->root, "questions"))
        err = add_questions(b, d);
    if (err && d->text[0])
        kvf_diag_prefix(d, "%s: line %d", b->file, number);
    return err;
}

static int read_lines(struct jsonl *b, FILE *f, struct kvf_diag *d)
{
    struct buf line = {.max = JSON_MOST};
    size_t bytes = 0;
    int err = KVF_OK, c = 0;
    for (int number = 1; !err && c != EOF; number++) {
        buf_clear(&line);
        for (c = getc(f); c != EOF && c != '\n' && !line.err; c = getc(f))
            buf_char(&line, (char)c);
        bytes += line.len;
        err = add_line(b, number, &line, d);
        if (!err && (number > MOST_LINES || bytes > MOST_BYTES))
            err = kvf_fail(d, KVF_E_LIMIT, "%s: over %d lines or %zu MiB; split the file", b->file,
                           MOST_LINES, MOST_BYTES >> 20);
    }
    if (!err && ferror(f))
        err = kvf_fail(d, KVF_E_IO, "%s: cannot read it: %s", b->file, strerror(errno));
    buf_finish(&line);
    return err;
}

static int by_id(const void *a, const void *b)
{
    const struct jsonl_line *x = *(const struct jsonl_line *const *)a;
    const struct jsonl_line *y = *(const struct jsonl_line *const *)b;
    int order = strcmp(x->id, y->id);
    return order ? order : (x->number > y->number) - (x->number < y->number);
}

/* Returns KVF_E_FORMAT with a sentence for the first line with the id of an earlier line,
 * otherwise KVF_OK. */
static int check_ids(const struct jsonl *b, struct kvf_diag *d)
{
    const struct jsonl_line **order = MEM_NEW(const struct jsonl_line *, b->n_lines);
    const struct jsonl_line *again = NULL, *was = NULL;
    if (!order)
        return KVF_E_NOMEM;
    for (size_t i = 0; i < b->n_lines; i++)
        order[i] = &b->line[i];
    qsort(order, b->n_lines, sizeof *order, by_id);
    for (size_t i = 1; i < b->n_lines; i++)
        if (strcmp(order[i]->id, order[i - 1]->id) == 0
            && (!again || order[i]->number < again->number)) {
            again = order[i];
            was = order[i - 1];
        }
    mem_free(order);
    if (!again)
        return KVF_OK;
    return kvf_fail(d, KVF_E_FORMAT, "%s: line %d: the id '%s' is that of line %d", b->file,
                    again->number, again->id, was->number);
}

static int make_folder(const char *path, struct kvf_diag *d)
{
    struct stat st;
    if (mkdir(path, 0777) == 0)
        return KVF_OK;
    int why = errno;
    if (stat(path, &st) != 0)
        return kvf_fail(d, KVF_E_IO, "%s: cannot make this folder: %s", path, strerror(why));
    if (!S_ISDIR(st.st_mode))
        return kvf_fail(d, KVF_E_ARG, "-o %s is no folder, which --jsonl needs for its traces",
                        path);
    return KVF_OK;
}

int jsonl_open(struct jsonl *b, struct kvf_diag *d)
{
    int err = shard_parse(b->part, &b->shard, d);
    if (!err)
        err = crew_join(&b->crew, d);
    if (!err && crew_size(b->crew) > 1 && strcmp(b->file, "-") == 0)
        err = kvf_fail(d, KVF_E_ARG, "--jsonl - needs a single process: give the name of a file");
    if (err)
        return err;
    FILE *f = strcmp(b->file, "-") == 0 ? stdin : fopen(b->file, "rb");
    if (!f)
        return kvf_fail(d, KVF_E_IO, "%s: cannot open it: %s", b->file, strerror(errno));
    err = read_lines(b, f, d);
    if (f != stdin)
        fclose(f);
    if (!err && b->n_lines == 0)
        err = kvf_fail(d, KVF_E_FORMAT, "%s: there are no prompts in it", b->file);
    if (!err)
        err = check_ids(b, d);
    return err || !b->folder ? err : make_folder(b->folder, d);
}

void jsonl_close(struct jsonl *b)
{
    for (size_t i = 0; i < b->n_lines; i++) {
        if (b->line[i].own)
            json_free(b->line[i].root);
        mem_free(b->line[i].messages);
    }
    mem_free(b->line);
    b->line = NULL;
    b->n_lines = b->cap = 0;
    crew_leave(b->crew);
    b->crew = NULL;
}

/* ---- the loop */

/* The state of the loop over the lines. */
struct loop {
    struct jsonl *b;
    const struct command *self;
    struct buf path; /* of the trace of the present line */
    int64_t made, skipped, failed;
    int first; /* number of the first line that failed; valid if failed > 0 */
};

static bool in_shard(const struct jsonl *b, size_t i)
{
    return (int64_t)i % b->shard.parts == b->shard.part - 1;
}

/* Sets l->path to the path of the trace of a line. Returns KVF_OK or KVF_E_NOMEM. */
static int name_trace(struct loop *l, const struct jsonl_line *x)
{
    buf_clear(&l->path);
    if (l->b->folder)
        buf_printf(&l->path, "%s/%s.kvf", l->b->folder, x->id);
    return l->path.err;
}

/* Returns true if the trace of a line exists and may be kept. Only closed traces have this name. */
static bool is_done(struct loop *l, const struct jsonl_line *x)
{
    struct stat st;
    return l->b->folder && !l->b->overwrite && name_trace(l, x) == KVF_OK
           && stat(l->path.data, &st) == 0;
}

static int64_t count_to_do(struct loop *l)
{
    int64_t n = 0;
    for (size_t i = 0; i < l->b->n_lines; i++)
        n += in_shard(l->b, i) && !is_done(l, &l->b->line[i]);
    return n;
}

/* Prints why a line failed. Returns KVF_OK, or an error that ends the loop. */
static int tell(struct loop *l, const struct command *self, const struct jsonl_line *x, int err,
                struct kvf_diag *d)
{
    if (!d->text[0])
        kvf_fail(d, err, "%s", kvf_strerror(err));
    kvf_diag_prefix(d, "%s: line %d", l->b->file, x->number);
    progress_clear(&l->b->bar);
    command_print_error(self, err, d);
    if (l->failed++ == 0 || x->number < l->first)
        l->first = x->number;
    l->b->told = l->made + l->failed;
    return err == KVF_E_NOMEM ? err : KVF_OK;
}

/* Checks a line with an existing trace. Returns KVF_OK, or an error that ends the loop. */
static int skip_line(struct loop *l, const struct command *self, const struct jsonl_line *x)
{
    struct kvf_diag d = {""}, why = {""};
    int err = l->b->check(l->b->ctx, x, l->path.data, &d);
    if (!err) {
        replace_tidy(l->path.data);
        l->skipped++;
        return KVF_OK;
    }
    kvf_fail(&why, err, "%s; give another folder, or --overwrite",
             d.text[0] ? d.text : kvf_strerror(err));
    return tell(l, self, x, err, &why);
}

/* Counts a finished line, or reports its failure. Returns KVF_OK, or an error that ends the
 * loop. */
static int line_done(void *ctx, const struct jsonl_line *x, int err, struct kvf_diag *d)
{
    struct loop *l = ctx;
    if (err)
        return err == KVF_E_CANCEL ? err : tell(l, l->self, x, err, d);
    l->made++;
    l->b->told = l->made + l->failed;
    progress_clear(&l->b->bar);
    return KVF_OK;
}

/* Runs one line of the file. Returns KVF_OK, or an error that ends the loop. */
static int make_line(struct loop *l, const struct command *self, const struct jsonl_line *x)
{
    struct kvf_diag d = {""};
    int err = name_trace(l, x);
    if (!err)
        err = file_keep(l->path.data, l->b->file, &d);
    if (err)
        return tell(l, self, x, err, &d);
    const char *out = l->b->folder ? l->path.data : NULL;
    return l->b->make(l->b->ctx, x, out, line_done, l);
}

/* Runs or skips a line that the crew assigned to this process. Returns KVF_OK, or an error that
 * ends the loop. */
static int do_line(void *ctx, int64_t i, struct kvf_diag *d)
{
    struct loop *l = ctx;
    const struct jsonl_line *x = &l->b->line[i];
    (void)d; /* errors of a line are reported at once */
    if (signals_caught() || ferror(stdout))
        return KVF_E_CANCEL;
    if (is_done(l, x))
        return skip_line(l, l->self, x);
    progress_clear(&l->b->bar);
    return make_line(l, l->self, x);
}

/* On rank 0: offers the lines of the shard to the crew. */
static int offer_lines(const struct jsonl *b)
{
    bool *other = MEM_NEW(bool, b->n_lines);
    int err = other ? KVF_OK : KVF_E_NOMEM;
    for (size_t i = 0; !err && i < b->n_lines; i++)
        other[i] = !in_shard(b, i);
    if (!err)
        err = crew_offer(b->crew, (int64_t)b->n_lines, other);
    mem_free(other);
    return err;
}

static int make_lines(struct loop *l, struct kvf_diag *d)
{
    struct jsonl *b = l->b;
    int err = crew_is_first(b->crew) ? offer_lines(b) : KVF_OK;
    if (!b->quiet && (b->folder || stdout_is_file()))
        progress_start(&b->bar, l->self->name, "prompts",
                       crew_size(b->crew) == 1 ? count_to_do(l) : 0);
    if (!err)
        err = crew_each(b->crew, do_line, l, d);
    if (!err || err == KVF_E_CANCEL) {
        int last = b->rest(b->ctx, line_done, l);
        err = err ? err : last;
    }
    progress_end(&l->b->bar, l->made + l->failed);
    return err == KVF_E_CANCEL && !signals_caught() ? KVF_OK : err;
}

int jsonl_run(const struct command *self, struct jsonl *b)
{
    struct loop l = {.b = b, .self = self};
    struct kvf_diag d = {""};
    int err = make_lines(&l, &d);
    if (b->cut)
        fprintf(stderr, "note: the context ended %lld of the answers; their \"stop\" is context\n",
                (long long)b->cut);
    if (!b->quiet && crew_size(b->crew) > 1)
        fprintf(stderr, "rank %d: ", crew_rank(b->crew));
    if (!b->quiet)
        fprintf(stderr, "%lld made, %lld skipped, %lld failed\n", (long long)l.made,
                (long long)l.skipped, (long long)l.failed);
    if (signals_caught())
        fprintf(stderr, "kvfate %s: interrupted; repeat the command to continue\n", self->name);
    else if (l.failed && err != KVF_E_NOMEM)
        err = kvf_fail(&d, KVF_E_FORMAT, "%s: lines that failed: %lld, the first is line %d",
                       b->file, (long long)l.failed, l.first);
    buf_finish(&l.path);
    if (signals_caught())
        return 128 + signals_caught();
    return command_end(self, err, &d);
}
