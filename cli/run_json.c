/* run_json.c - writes the JSON object of a run (--json). */
#include "cli/run_json.h"

#include <math.h>

#include "base/json.h"

double run_rate(double n, double seconds)
{
    return seconds > 0 && n > 0 ? n / seconds : NAN;
}

int run_prefilled(const struct run *u)
{
    int n = session_length(u->session);
    return n < u->r.prompt.n_ids ? n : u->r.prompt.n_ids;
}

static void put_times(struct buf *b, const struct run *u)
{
    json_put_member_num(b, "prefill_seconds", u->prefill_seconds);
    json_put_member_num(b, "decode_seconds", u->decode_seconds);
    json_put_member_num(b, "prefill_tokens_per_second",
                        run_rate(run_prefilled(u), u->prefill_seconds));
    json_put_member_num(b, "decode_tokens_per_second",
                        run_rate(u->n_generated - 1, u->decode_seconds));
}

static void put_cache(struct buf *b, const struct run *u)
{
    const struct cache_stats st = session_cache_stats(u->session);
    json_put_member_num(b, "kv_bytes_peak", (double)(st.pages_peak * st.page_bytes));
    json_put_member_num(b, "kv_entries_peak", (double)st.entries_peak);
    json_put_member_num(b, "kv_entries_end", (double)st.entries);
    json_put_member_num(b, "kv_heads",
                        (double)u->r.engine->config.n_layers * u->r.methods.cache_heads);
    json_put_member_num(b, "triggers", (double)session_cuts(u->session));
    json_put_member_num(b, "entries_read", session_reads(u->session));
}

void run_json(const struct run *u, const char *id, struct buf *b)
{
    buf_char(b, '{');
    if (id)
        json_put_member_str(b, "id", id);
    json_put_member_str(b, "model", u->r.engine->config.name);
    json_put_member_str(b, "method", u->r.methods.row.name);
    json_put_member_num(b, "budget", u->r.methods.params.budget);
    if (u->r.methods.params.part)
        json_put_member_num(b, "budget_percent",
                            (double)u->r.methods.params.part * 100 / (double)BUDGET_WHOLE);
    json_put_member_num(b, "prompt_tokens", u->r.prompt.n_ids);
    if (u->r.prompt.n_question) {
        json_put_member_str(b, "question", "unknown");
        json_put_member_num(b, "question_tokens", u->r.prompt.n_question);
    }
    json_put_member_num(b, "generated_tokens", u->n_generated);
    if (!u->scores)
        json_put_member_str(b, "stop", answer_stop_name(u->stop));
    put_times(b, u);
    put_cache(b, u);
    json_put_member_num(b, "trace_bytes", (double)u->trace_bytes);
    if (u->scores) {
        json_put_member_num(b, "logprob", -u->nll);
        json_put_key(b, "greedy");
        buf_str(b, u->greedy ? "true" : "false");
    }
    json_put_key(b, "text");
    json_put_str(b, u->answer.data ? u->answer.data : "", u->answer.len);
    buf_str(b, "}\n");
}
