/* trace_facts.c - reads the facts of traces. */
#include "cli/trace_facts.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "analyzers/protocol.h"
#include "base/mem.h"
#include "studies/corpus.h"
#include "libtrace/run_header.h"

const struct fact fact_table[FACTS] = {
    [FACT_TRACE] = {"trace", "", FACT_TEXT, "name of the file"},
    [FACT_STATE] = {"state", "", FACT_TEXT, "closed, unfinished, repaired, empty or unreadable"},
    [FACT_MODEL] = {"model", "", FACT_TEXT, "name of the model", "model", "name"},
    [FACT_METHOD] = {"method", "", FACT_TEXT, "the cache method", "method", "name"},
    [FACT_BUDGET] = {"budget", "entries", FACT_WHOLE, "entries that a head may cache; 0: all",
                     "method", "budget"},
    [FACT_PERCENT] = {"budget_percent", "%", FACT_REAL, "the budget, if it was given as a fraction",
                      "method", "budget_percent"},
    [FACT_PROTOCOL] = {"protocol", "", FACT_TEXT, "settings that change the method and its use"},
    [FACT_CUT] = {"cut", "", FACT_TEXT, "when entries are evicted", "method", "cut", "always"},
    [FACT_QUESTION] = {"question", "", FACT_TEXT, "known or unknown to the method", "run",
                       "question", "known"},
    [FACT_TOKENS] = {"tokens", "tokens", FACT_WHOLE, "recorded tokens, prompt and answer"},
    [FACT_PROMPT_TOKENS] = {"prompt_tokens", "tokens", FACT_WHOLE, "tokens of the prompt", "run",
                            "prompt_tokens"},
    [FACT_SEED] = {"seed", "", FACT_WHOLE, "of sampling", "run", "seed"},
    [FACT_LAYERS] = {"layers", "", FACT_WHOLE, "layers of the model"},
    [FACT_QUERY_HEADS] = {"query_heads", "", FACT_WHOLE, "query heads of a layer", "model",
                          "query_heads"},
    [FACT_KV_HEADS] = {"kv_heads", "", FACT_WHOLE, "KV heads of a layer", "model", "kv_heads"},
    [FACT_PROBES] = {"probes", "", FACT_TEXT, "recorded probes", "run", "probes"},
    [FACT_COLUMNS] = {"columns", "", FACT_WHOLE, "number of columns"},
    [FACT_DOCUMENT] = {"document", "", FACT_TEXT, "equal for equal prompts"},
    [FACT_BYTES] = {"bytes", "bytes", FACT_WHOLE, "size of the file"},
};

static const char *state_of(const struct kvf_trace *t)
{
    if (kvf_n_steps(t) == 0)
        return "empty";
    if (!kvf_is_clean(t))
        return "unfinished";
    return kvf_note(t, "repaired") ? "repaired" : "closed";
}

static int64_t computed_number(const struct kvf_trace *t, int fact)
{
    switch (fact) {
    case FACT_TOKENS:
        return kvf_n_steps(t);
    case FACT_LAYERS:
        return kvf_n_layers(t);
    case FACT_COLUMNS:
        return kvf_n_columns(t);
    default:
        return (int64_t)kvf_bytes(t);
    }
}

/* Returns the id of the document in hexadecimal digits, owned by the caller; "" if the trace does
 * not identify its document. */
static char *document_of(struct kvf_trace *t)
{
    uint64_t document = 0, print = 0;
    struct kvf_diag unused = {""};
    char hex[17] = "";
    if (kvf_check_size(t, &unused) == KVF_OK
        && corpus_identify(t, &document, &print, &unused) == KVF_OK)
        snprintf(hex, sizeof hex, "%016llx", (unsigned long long)document);
    return mem_strdup(hex);
}

/* Returns the protocol of a run; the caller frees it. */
static char *protocol_of(const struct json *header)
{
    struct buf text = {0};
    protocol_put(&text, header);
    const char *words = text.len ? text.data : "";
    char *copy = text.err ? NULL : mem_strdup(words);
    buf_finish(&text);
    return copy;
}

static char *computed_text(struct kvf_trace *t, const struct json *header, int fact)
{
    switch (fact) {
    case FACT_TRACE:
        return mem_strdup(kvf_path(t));
    case FACT_STATE:
        return mem_strdup(state_of(t));
    case FACT_PROTOCOL:
        return protocol_of(header);
    default:
        return document_of(t);
    }
}

/* Moves f to *ret. Frees it and returns KVF_E_NOMEM if one of its texts could not be allocated. */
static int check_complete(struct trace_facts *f, struct trace_facts *ret)
{
    for (int i = 0; i < FACTS; i++)
        if (fact_table[i].type == FACT_TEXT && !f->text[i]) {
            facts_free(f);
            return KVF_E_NOMEM;
        }
    *ret = *f;
    return KVF_OK;
}

int facts_read(struct kvf_trace *t, struct trace_facts *ret)
{
    struct trace_facts f = {0};
    if (run_header(t, &f.header, NULL) != KVF_OK) /* such a trace is listed without these facts */
        f.header = NULL;
    for (int i = 0; i < FACTS; i++) {
        const struct fact *a = &fact_table[i];
        const struct json *object = json_get(f.header, a->object);
        const struct json *value = json_get(object, a->member);
        const char *absent = object && a->absent ? a->absent : "";
        f.real[i] = json_num(value, NAN);
        if (a->type == FACT_TEXT)
            f.text[i] = a->object ? mem_strdup(json_str(value, absent))
                                  : computed_text(t, f.header, i);
        else
            f.number[i] = a->object ? json_int(value, -1) : computed_number(t, i);
    }
    return check_complete(&f, ret);
}

int facts_unreadable(const char *path, struct trace_facts *ret)
{
    struct trace_facts f = {0};
    struct stat st;
    for (int i = 0; i < FACTS; i++) {
        f.number[i] = -1;
        f.real[i] = NAN;
        if (fact_table[i].type == FACT_TEXT)
            f.text[i] = mem_strdup("");
    }
    mem_free(f.text[FACT_TRACE]);
    mem_free(f.text[FACT_STATE]);
    f.text[FACT_TRACE] = mem_strdup(path);
    f.text[FACT_STATE] = mem_strdup("unreadable");
    if (stat(path, &st) == 0)
        f.number[FACT_BYTES] = (int64_t)st.st_size;
    return check_complete(&f, ret);
}

void facts_trim(struct trace_facts *f)
{
    json_free(f->header);
    f->header = NULL;
}

void facts_free(struct trace_facts *f)
{
    for (int i = 0; i < FACTS; i++)
        mem_free(f->text[i]);
    facts_trim(f);
    *f = (struct trace_facts){0};
}
