/* write_dump.c - writes the trace that listing.txt shows byte by byte. */
#include <kvf/trace.h>

int main(int argc, char **argv)
{
    static const uint16_t n_kv[1] = {1}, n_query[1] = {2};
    static const struct kvf_shape shape = {1, n_kv, n_query};
    static const struct kvf_column columns[3] = {
        {"tokens.id", KVF_I32, KVF_SPACE_RUN, KVF_AXIS_TOKEN, 0, ""},
        {"last_selected.top64", KVF_U16, KVF_SPACE_QUERY, KVF_AXIS_TOKEN,
         KVF_COL_SNAPSHOT | KVF_COL_AGE, "step"},
        {"seen", KVF_U32, KVF_SPACE_KV, KVF_AXIS_TOKEN, KVF_COL_SNAPSHOT | KVF_COL_INTERVALS,
         "step"},
    };
    static const int32_t id[3] = {17, 17, 17};
    static const int32_t prompt[2] = {17, 17}; /* the third token is generated */
    static const struct kvf_writer_options options = {
        .existing = KVF_OVERWRITE, .prompt = prompt, .n_prompt = 2};
    static const uint32_t end[3] = {2, 2, 3};
    static const uint16_t age[2][3] = {{2, 0xffff, 0}, {1, 1, 0}};
    static const uint32_t n_seen[3] = {2, 0, 1}; /* token 0 is absent in step 1, token 1 always */
    static const struct kvf_interval seen[3] = {{0, 0}, {2, 2}, {2, 2}};
    static const struct kvf_blob keys = {"k", KVF_F16, 2, 0, 0, 1, {2, 2}};
    static const uint16_t key[2][2] = {{0x3c00, 0xc000}, {0x3800, 0}}; /* 1, -2; 0.5, 0 */
    struct kvf_writer *w = 0;
    if (argc != 2 || kvf_writer_open(argv[1], "{\"run\":{}}", &shape, columns, 3, &options, &w, 0))
        return 1;
    kvf_write_token_bytes(w, 0, 3, end, "Hi!");
    kvf_write_chunk(w, 0, 0, 0, 1, 0, 3, 0, id);
    kvf_write_chunk(w, 1, 0, 0, 2, 0, 3, 1, age);
    kvf_write_intervals(w, 2, 0, 0, 1, 0, 1, 1, &n_seen[0], seen);
    kvf_write_intervals(w, 2, 0, 0, 1, 1, 2, 1, &n_seen[1], seen + 2);
    kvf_write_blob(w, &keys, false, key);
    kvf_writer_commit(w, 1, 3);
    kvf_writer_note(w, "result", "{}");
    return kvf_writer_close(w, 0) != 0;
}
