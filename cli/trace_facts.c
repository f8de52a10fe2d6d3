/* trace_facts.c - reads the facts of traces. */
#include "cli/trace_facts.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "studies/corpus.h"
#include "libtrace/run_header.h"

const struct fact fact_table[FACTS] = {
    [FACT_TRACE] = {"trace", "", true, "name of the file", NULL, NULL},
    [FACT_STATE] = {"state", "", true, "closed, unfinished, repaired, empty or unreadable", NULL,
                    NULL},
    [FACT_MODEL] = {"model", "", true, "name of the model", "model", "name"},
    [FACT_METHOD] = {"method", "", true, "the cache method", "method", "name"},
    [FACT_BUDGET] = {"budget", "entries", false, "entries that a head may hold; 0: all", "method",
                     "budget"},
    [FACT_TOKENS] = {"tokens", "tokens", false, "recorded tokens, prompt and answer", NULL, NULL},
    [FACT_PROMPT_TOKENS] = {"prompt_tokens", "tokens", false, "those of the prompt", "run",
                            "prompt_tokens"},
    [FACT_SEED] = {"seed", "", false, "of sampling", "run", "seed"},
    [FACT_LAYERS] = {"layers", "", false, "layers of the model", NULL, NULL},
    [FACT_QUERY_HEADS] = {"query_heads", "", false, "query heads of a layer", "model",
                          "query_heads"},
    [FACT_KV_HEADS] = {"kv_heads", "", false, "KV heads of a layer", "model", "kv_heads"},
    [FACT_PROBES] = {"probes", "", true, "what was recorded", "run", "probes"},
    [FACT_COLUMNS] = {"columns", "", false, "number of columns", NULL, NULL},
    [FACT_DOCUMENT] = {"document", "", true, "equal for equal prompts", NULL, NULL},
    [FACT_BYTES] = {"bytes", "bytes", false, "size of the file", NULL, NULL},
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

static char *computed_text(struct kvf_trace *t, int fact)
{
    switch (fact) {
    case FACT_TRACE:
        return mem_strdup(kvf_path(t));
    case FACT_STATE:
        return mem_strdup(state_of(t));
    default:
        return document_of(t);
    }
}

/* Moves f to *ret. Frees it and returns KVF_E_NOMEM if one of its texts could not be allocated. */
static int check_complete(struct trace_facts *f, struct trace_facts *ret)
{
    for (int i = 0; i < FACTS; i++)
        if (fact_table[i].is_text && !f->text[i]) {
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
        const struct json *value = json_get(json_get(f.header, a->object), a->member);
        if (a->is_text)
            f.text[i] = a->object ? mem_strdup(json_str(value, "")) : computed_text(t, i);
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
        if (fact_table[i].is_text)
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
