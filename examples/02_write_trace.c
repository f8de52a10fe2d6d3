/* 02_write_trace.c - a trace from your own program: here, two heads that keep a
 * window of 8 and of 16 entries, over 64 tokens.  Every kvfate command and the
 * other examples read the result.
 *
 *     ./02_write_trace X.kvf && kvfate eviction X.kvf */
#include <stdio.h>

#include <kvf/schema.h>
#include <kvf/trace.h>

enum { T = 64, HEADS = 2 };

static const struct kvf_column columns[] = {
    {"tokens.id", KVF_I32, KVF_SPACE_RUN, KVF_AXIS_TOKEN, 0, ""},
    {"evict_step", KVF_U32, KVF_SPACE_KV, KVF_AXIS_TOKEN, KVF_COL_SNAPSHOT, "step"},
    {"last_selected.top64", KVF_U16, KVF_SPACE_QUERY, KVF_AXIS_TOKEN,
     KVF_COL_SNAPSHOT | KVF_COL_AGE, "step"},
};

/* Ages repeat 0 1 2 ... 7 0 1 ...; no age exceeds that of the last query. */
static uint16_t last_age(uint32_t i)
{
    uint32_t most = T - 1 - i;
    return (uint16_t)(i % 8 < most ? i % 8 : most);
}

static int write_tokens(struct kvf_writer *w)
{
    int32_t id[T];
    uint32_t end[T];
    char text[T];
    for (uint32_t i = 0; i < T; i++) {
        id[i] = (int32_t)(i % 26);
        text[i] = (char)('a' + i % 26);
        end[i] = i + 1;
    }
    int err = kvf_write_token_bytes(w, 0, T, end, text);
    return err ? err : kvf_write_chunk(w, 0, 0, 0, 1, 0, T, 0, id);
}

/* A snapshot: all of a column as it stands after T steps, then the commit. */
static int write_snapshot(struct kvf_writer *w, uint32_t epoch)
{
    uint32_t step[HEADS][T];
    uint16_t age[HEADS][T];
    for (uint32_t h = 0; h < HEADS; h++)
        for (uint32_t i = 0; i < T; i++) {
            uint32_t window = h ? 16 : 8;
            step[h][i] = i + window < T ? i + window : KVF_ALIVE;
            age[h][i] = last_age(i);
        }
    int err = kvf_write_chunk(w, 1, 0, 0, HEADS, 0, T, epoch, step);
    if (!err)
        err = kvf_write_chunk(w, 2, 0, 0, HEADS, 0, T, epoch, age);
    return err ? err : kvf_writer_commit(w, epoch, T);
}

int main(int argc, char **argv)
{
    static const uint16_t heads[1] = {HEADS}; /* of each layer; here as many query heads */
    const struct kvf_shape shape = {1, heads, heads};
    struct kvf_writer *w = NULL;
    struct kvf_diag d = {""};
    if (argc != 2) {
        fprintf(stderr, "usage: 02_write_trace X.kvf\n");
        return 2;
    }
    int err = kvf_writer_open(argv[1], "{\"method\":{\"name\":\"window\"}}", &shape, columns,
                              (int)(sizeof columns / sizeof *columns), NULL, &w, &d);
    if (!err) {
        err = write_tokens(w);
        if (!err)
            err = write_snapshot(w, 1);
        int closed = kvf_writer_close(w, &d); /* always: it frees, and tells the first error */
        err = err ? err : closed;
    }
    if (err)
        fprintf(stderr, "02_write_trace: %s\n", d.text[0] ? d.text : kvf_strerror(err));
    return err ? 1 : 0;
}
