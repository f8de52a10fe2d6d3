/* 05_own_decoder.c - a trace from a decoder of one's own, token by token: which entries its cache
 * kept, how long each token took to be guessed, and a column that no release of kvfate knows,
 * whose name therefore begins with x-.  Here the decoder is a rule: every key that is a multiple
 * of the head's number is never evicted, others leave after 16 steps.
 *
 *     ./05_own_decoder X.kvf && kvfate survival X.kvf */
#include <stdio.h>

#include <kvf/schema.h>
#include <kvf/trace.h>

enum { T = 256, PROMPT = 4, HEADS = 2, WINDOW = 16, EVERY = 64 };
enum { ID, NLL, GUESSES, EVICT_STEP, COLUMNS };

static const struct kvf_column columns[COLUMNS] = {
    {"tokens.id", KVF_I32, KVF_SPACE_RUN, KVF_AXIS_TOKEN, 0, ""},
    {"nll", KVF_F32, KVF_SPACE_RUN, KVF_AXIS_TOKEN, 0, "nat"},
    {"x-mylab.guesses", KVF_U16, KVF_SPACE_RUN, KVF_AXIS_TOKEN, 0, ""},
    {"evict_step", KVF_U32, KVF_SPACE_KV, KVF_AXIS_TOKEN, KVF_COL_SNAPSHOT, "step"},
};

struct token {
    int32_t id;
    float nll;
    uint16_t guesses; /* words that the decoder thought more likely */
    char text;
};

/* What one step of the decoder says. */
static struct token decode(uint32_t t)
{
    const struct token next = {(int32_t)(t * t % 26), (float)(t % 7) / 2, (uint16_t)(t % 7),
                               (char)('a' + t * t % 26)};
    return next;
}

/* A step: values of streams are final once they are written. */
static int write_step(struct kvf_writer *w, uint32_t t)
{
    const struct token now = decode(t);
    const uint32_t end = 1;
    int err = kvf_write_token_bytes(w, t, 1, &end, &now.text);
    if (!err)
        err = kvf_write_chunk(w, ID, 0, 0, 1, t, 1, 0, &now.id);
    if (!err)
        err = kvf_write_chunk(w, NLL, 0, 0, 1, t, 1, 0, &now.nll);
    return err ? err : kvf_write_chunk(w, GUESSES, 0, 0, 1, t, 1, 0, &now.guesses);
}

/* Now and then the state of the cache, whole; the newest counts. */
static int write_cache(struct kvf_writer *w, uint32_t epoch, uint32_t n)
{
    uint32_t step[HEADS][T];
    int err = KVF_OK;
    for (uint32_t h = 0; !err && h < HEADS; h++) {
        for (uint32_t i = 0; i < n; i++)
            step[h][i] = i % (h + 2) && i + WINDOW < n ? i + WINDOW : KVF_ALIVE;
        err = kvf_write_chunk(w, EVICT_STEP, 0, (int)h, 1, 0, n, epoch, step[h]);
    }
    return err ? err : kvf_writer_commit(w, epoch, n);
}

int main(int argc, char **argv)
{
    static const uint16_t heads[1] = {HEADS};
    const struct kvf_shape shape = {1, heads, heads};
    int32_t prompt[PROMPT]; /* with the run header it makes the identity of the run */
    const struct kvf_writer_options options = {.prompt = prompt, .n_prompt = PROMPT};
    struct kvf_writer *w = NULL;
    struct kvf_diag d = {""};
    if (argc != 2) {
        fprintf(stderr, "usage: 05_own_decoder X.kvf\n");
        return 2;
    }
    for (uint32_t t = 0; t < PROMPT; t++)
        prompt[t] = decode(t).id;
    int err = kvf_writer_open(argv[1], "{\"model\":{\"name\":\"mylab\"}}", &shape, columns, COLUMNS,
                              &options, &w, &d);
    if (!err) {
        for (uint32_t t = 0; !err && t < T; t++) {
            err = write_step(w, t);
            if (!err && (t + 1) % EVERY == 0)
                err = write_cache(w, (t + 1) / EVERY, t + 1);
        }
        int closed = kvf_writer_close(w, &d); /* always: it frees, and tells the first error */
        err = err ? err : closed;
    }
    if (err)
        fprintf(stderr, "05_own_decoder: %s\n", d.text[0] ? d.text : kvf_strerror(err));
    return err ? 1 : 0;
}
