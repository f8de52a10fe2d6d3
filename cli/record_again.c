/* record_again.c - records the run of a trace again (record_again.h). */
#include "cli/record_again.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/json.h"
#include "base/mem.h"
#include "cli/folders.h"
#include "cli/model_list.h"
#include "engine/model/config.h"
#include "engine/model/gguf.h"
#include "libtrace/run_header.h"
#include "studies/diff_header.h"

enum { AGAIN_PROBE = 1024 }; /* bytes of a probe with its heads */

static void add(struct again *a, const char *word)
{
    if (a->n < AGAIN_WORDS - 1)
        a->word[a->n++] = mem_strdup(word);
}

static void add_buf(struct again *a, struct buf *b)
{
    add(a, b->data ? b->data : "");
    buf_finish(b);
}

static void add_pair(struct again *a, const char *option, const char *value)
{
    add(a, option);
    add(a, value);
}

/* Returns true if the file of a listed model is in the cache folder and gives the model this name.
 */
static bool is_model(const char *listed, const char *name)
{
    struct kvf_diag unused;
    struct buf path = {0};
    struct gguf *g = NULL;
    char has[128];
    bool same = false;
    if (model_path(listed, &path, &unused) == KVF_OK
        && gguf_open(path.data, &g, &unused) == KVF_OK) {
        model_name(g, has, sizeof has);
        same = strcmp(has, name) == 0;
        gguf_close(g);
    }
    buf_finish(&path);
    return same;
}

static const char *find_model(const struct json *header)
{
    const char *name = json_str(json_get(json_get(header, "model"), "name"), "");
    for (const struct listed_model *m = model_list; m->name; m++)
        if (is_model(m->name, name))
            return m->name;
    return NULL;
}

/* Returns the reason why a run with this header cannot be repeated from its trace, or NULL. */
static const char *obstacle(const struct json *header)
{
    const struct json *run = json_get(header, "run"), *method = json_get(header, "method");
    if (!run || !method || !json_get(header, "model"))
        return "kvfate run did not record it";
    if (json_get(run, "captured"))
        return "kvfate.capture recorded it";
    if (json_get(run, "external_score"))
        return "another program computed its scores";
    if (json_get(method, "head_budgets"))
        return "its --head-budgets file is not known";
    return NULL;
}

/* Appends "NAME:options" of a method. */
static void put_method(struct buf *b, const struct json *method)
{
    const char *options = json_str(json_get(method, "options"), NULL);
    buf_printf(b, "%s%s%s", json_str(json_get(method, "name"), ""), options ? ":" : "",
               options ? options : "");
}

static void add_method(struct again *a, const struct json *header)
{
    const struct json *method = json_get(header, "method");
    double percent = json_num(json_get(method, "budget_percent"), 0);
    int64_t budget = json_int(json_get(method, "budget"), 0);
    struct buf text = {0};
    put_method(&text, method);
    if (strcmp(text.data ? text.data : "", "full") == 0) {
        buf_finish(&text);
        return;
    }
    add(a, "--method");
    add_buf(a, &text);
    if (percent > 0)
        buf_printf(&text, "%.12g%%", percent);
    else if (budget > 0)
        buf_printf(&text, "%lld", (long long)budget);
    if (text.len) {
        add(a, "-B");
        add_buf(a, &text);
    }
    for (const struct json *o = json_first(json_get(header, "overrides")); o; o = json_next(o)) {
        struct buf more = {0};
        buf_printf(&more, "%s=", json_str(json_get(o, "heads"), ""));
        put_method(&more, o);
        add(a, "--override");
        add_buf(a, &more);
    }
}

/* Adds the options of execution that the run header states. */
static void add_execution(struct again *a, const struct json *header)
{
    const struct json *run = json_get(header, "run");
    const char *precision = json_str(json_get(run, "precision"), "");
    const char *scale = json_str(json_get(json_get(header, "model"), "rope_scale"), NULL);
    bool exact = strcmp(precision, "f32") == 0;
    if (exact)
        add(a, "--exact");
    if (strncmp(precision, "float weights as 16-bit", 23) == 0)
        add_pair(a, "--activations", "16");
    else if (strstr(precision, "8-bit activations"))
        add_pair(a, "--activations", "8");
    const char *type = json_str(json_get(run, "kv_type"), NULL);
    if (type && strcmp(type, exact ? "f32" : "f16") != 0)
        add_pair(a, "--kv-type", type);
    if (scale)
        add_pair(a, "--rope-scale", scale);
}

/* Appends ",NAME" for each probe that the sentence names, without repetition. */
static void put_probes(struct buf *b, const char *lacks)
{
    static const char flag[] = "kvfate run --probes ";
    buf_str(b, "auto");
    for (const char *at = strstr(lacks, flag); at; at = strstr(at, flag)) {
        char name[AGAIN_PROBE];
        at += sizeof flag - 1;
        /* the heads of raw:HEADS may contain commas */
        snprintf(name, sizeof name, ",%.*s",
                 (int)strcspn(at, strncmp(at, "raw:", 4) == 0 ? " )" : ", )"), at);
        if (strcmp(name, ",lean") != 0 && !strstr(b->data ? b->data : "", name))
            buf_str(b, name);
    }
}

/* Returns true if the columns that the sentence names need an input that the run did not have. */
static bool needs_input(const char *lacks)
{
    return strstr(lacks, "--gates FILE") || strstr(lacks, "--plan PLAN") || strstr(lacks, "--spans")
           || strstr(lacks, "--method");
}

int again_plan(const struct kvf_trace *t, const char *lacks, const char *model, const char *out,
               struct again *ret, struct kvf_diag *d)
{
    struct json *header = NULL;
    struct buf program = {0}, probes = {0};
    int err = run_header(t, &header, d);
    if (err)
        return err;
    const char *why = needs_input(lacks) ? "the missing columns need another method or input"
                                         : obstacle(header);
    if (!why && !model)
        model = find_model(header);
    if (!why && !model)
        why = "its model is not a listed model in the cache folder; give it with --model";
    if (why || !strstr(lacks, "kvfate run "))
        err = kvf_fail(d, KVF_E_NOTFOUND, "%s cannot be recorded again: %s", kvf_path(t),
                       why ? why : "no option of kvfate run records the missing data");
    if (!err)
        err = folder_beside(0, "/kvfate", &program);
    if (err) {
        json_free(header);
        return err;
    }
    add_buf(ret, &program);
    add(ret, "run");
    add_pair(ret, "-m", model);
    add_pair(ret, "--force", kvf_path(t));
    add_method(ret, header);
    add_execution(ret, header);
    put_probes(&probes, lacks);
    add(ret, "--probes");
    add_buf(ret, &probes);
    if (strstr(lacks, "--shadow model"))
        add_pair(ret, "--shadow", "model");
    else if (strstr(lacks, "--shadow entries"))
        add_pair(ret, "--shadow", "entries");
    add_pair(ret, "-o", out);
    json_free(header);
    return ret->n < AGAIN_WORDS - 1 ? KVF_OK : KVF_E_LIMIT;
}

void again_show(const struct again *a, struct buf *out)
{
    buf_str(out, "kvfate");
    for (int i = 1; i < a->n; i++) {
        bool plain = strspn(a->word[i], "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                        "0123456789-_./:,=%+@")
                     == strlen(a->word[i]);
        buf_str(out, plain ? " " : " '");
        for (const char *c = a->word[i]; *c; c++)
            if (*c == '\'')
                buf_str(out, "'\\''");
            else
                buf_char(out, *c);
        buf_str(out, plain ? "" : "'");
    }
}

int again_run(const struct again *a, struct kvf_diag *d)
{
    int status = 0;
    fflush(stdout);
    fflush(stderr);
    pid_t child = fork();
    if (child == 0) { /* the answer of the run is not output of the analysis */
        dup2(STDERR_FILENO, STDOUT_FILENO);
        execv(a->word[0], a->word);
        _exit(127);
    }
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status)
        || WEXITSTATUS(status) != 0)
        return kvf_fail(d, KVF_E_NOTFOUND, "the run could not be recorded again");
    return KVF_OK;
}

/* Returns true for keys of the run header that must agree. All other keys describe the recording
 * and the source of the tokens. */
static bool must_agree(const char *key)
{
    static const char *const part[] = {"model.",        "tokenizer.",  "method.",
                                       "overrides",     "gates.",      "entry_space",
                                       "run.precision", "run.kv_type", "run.question"};
    bool found = false;
    for (size_t i = 0; i < sizeof part / sizeof *part; i++)
        found |= strncmp(key, part[i], strlen(part[i])) == 0;
    return found;
}

/* Returns the value of a key, or NULL. */
static const char *value_of(const struct flat *f, const char *key)
{
    for (size_t i = 0; i < f->n; i++)
        if (strcmp(f->pair[i].key, key) == 0)
            return f->pair[i].value;
    return NULL;
}

/* Returns a key that only `a` has or that has another value in `b`, or NULL. */
static const char *difference(const struct flat *a, const struct flat *b)
{
    for (size_t i = 0; i < a->n; i++) {
        const char *other = value_of(b, a->pair[i].key);
        if (must_agree(a->pair[i].key) && (!other || strcmp(other, a->pair[i].value) != 0))
            return a->pair[i].key;
    }
    return NULL;
}

int again_same(const struct kvf_trace *was, const struct kvf_trace *now, struct kvf_diag *d)
{
    struct flat a = {0}, b = {0};
    int err = flat_add(&a, "", kvf_meta(was));
    if (!err)
        err = flat_add(&b, "", kvf_meta(now));
    const char *key = err ? NULL : difference(&a, &b);
    if (!err && !key)
        key = difference(&b, &a);
    if (!err && !key && kvf_n_steps(was) != kvf_n_steps(now))
        key = "the number of tokens";
    if (key)
        err = kvf_fail(d, KVF_E_FORMAT,
                       "the repeated run differs from that of %s: %s; record it with kvfate run",
                       kvf_path(was), key);
    flat_free(&a);
    flat_free(&b);
    return err;
}

void again_free(struct again *a)
{
    for (int i = 0; i < a->n; i++)
        mem_free(a->word[i]);
    *a = (struct again){.n = 0};
}
