/* test_head_table.c - tables of budgets per head: values and shapes of each form, and rejections.
 */
#include "file.h"

#include "engine/gate/head_table.h"

/* Opens a table from memory. */
static int open_bytes(const void *data, size_t n, struct head_table **ret, struct kvf_diag *d)
{
    char path[64];
    int fd = memfd_create("table", 0);
    cr_assert(fd >= 0 && write(fd, data, n) == (ssize_t)n);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    *ret = NULL;
    d->text[0] = 0;
    int err = head_table_open(path, ret, d);
    close(fd);
    return err;
}

static struct head_table *open_text(const char *text)
{
    struct head_table *t;
    struct kvf_diag d;
    cr_assert(zero(int, open_bytes(text, strlen(text), &t, &d)), "%s: %s", text, d.text);
    return t;
}

static void expect_values(const struct head_table *t, enum head_table_form form, int L, int H,
                          const double *value)
{
    cr_assert(eq(int, (int)t->form, (int)form));
    cr_assert(eq(int, t->n_layers, L));
    cr_assert(eq(int, t->n_heads, H));
    for (int i = 0; i < L * H; i++)
        cr_expect(eq(dbl, t->value[i], value[i]), "head %d", i);
}

Test(head_table, entries_and_fractions)
{
    struct head_table *t = open_text("\xef\xbb\xbf {\"unit\": \"entries\", \"budgets\": "
                                     "[[1, 2e0, 16777216], [40, 5, 6]]}\n");
    expect_values(t, HEAD_TABLE_ENTRIES, 2, 3, (double[]){1, 2, 16777216, 40, 5, 6});
    head_table_close(t);
    t = open_text("{\"budgets\": [[0.25], [1.5]], \"unit\": \"fraction\"}");
    expect_values(t, HEAD_TABLE_FRACTIONS, 2, 1, (double[]){0.25, 1.5});
    head_table_close(t);
    head_table_close(NULL);
}

Test(head_table, scores_are_means_of_samples_by_key)
{
    /* in any order of keys */
    struct head_table *t = open_text("{\"1-1\": [4], \"0-1\": [1, 2], \"0-0\": [0, 0, 0], "
                                     "\"1-0\": [0.5, 0.25, 0.75, 0.5]}");
    expect_values(t, HEAD_TABLE_SCORES, 2, 2, (double[]){0, 1.5, 0.5, 4});
    head_table_close(t);
}

Test(head_table, kept_heads_of_both_forms)
{
    struct head_table *t = open_text("{\"2\": [1, 0], \"0\": [3]}");
    expect_values(t, HEAD_TABLE_KEPT, 3, 4, (double[]){0, 0, 0, 1, 0, 0, 0, 0, 1, 1, 0, 0});
    head_table_close(t);
    t = open_text("{\"prefix_matching\": {\"1\": [0, 2]}, \"copying\": {\"0\": [1], \"1\": [2]}}");
    expect_values(t, HEAD_TABLE_KEPT, 2, 3, (double[]){0, 1, 0, 1, 0, 1});
    head_table_close(t);
    t = open_text("{\"prefix_matching\": {}, \"copying\": {\"0\": [0]}}");
    expect_values(t, HEAD_TABLE_KEPT, 1, 1, (double[]){1});
    head_table_close(t);
}

static int open_tensor(const char *meta, const char *name, const char *shape, const float *v,
                       size_t n, struct head_table **ret, struct kvf_diag *d)
{
    struct maker m = {0};
    start(&m, meta);
    tensor(&m, name, shape, v, n);
    const struct buf *f = finish(&m);
    int err = open_bytes(f->data, f->len, ret, d);
    end(&m);
    return err;
}

Test(head_table, tensors)
{
    static float pruned[99 * 2];
    const float entries[] = {3, 4, 5, 6};
    struct head_table *t, *same;
    struct kvf_diag d;
    cr_assert(zero(int, open_tensor("\"kvfate.unit\": \"entries\", \"format\": \"pt\"", "budgets",
                                    "[2, 2]", entries, 4, &t, &d)),
              "%s", d.text);
    expect_values(t, HEAD_TABLE_ENTRIES, 2, 2, (double[]){3, 4, 5, 6});
    same = open_text("{\"unit\": \"entries\", \"budgets\": [[3, 4], [5, 6]]}");
    cr_expect(eq(str, t->hash, same->hash), "the hash is that of the numbers");
    head_table_close(same);
    same = open_text("{\"unit\": \"fraction\", \"budgets\": [[3, 4], [5, 6]]}");
    cr_expect(ne(str, t->hash, same->hash));
    head_table_close(same);
    head_table_close(t);
    for (int i = 0; i < 99 * 2; i++)
        pruned[i] = (float)i / 256;
    cr_assert(zero(int, open_tensor("\"kvfate.unit\": \"pruned\"", "budgets", "[99, 1, 2]", pruned,
                                    99 * 2, &t, &d)),
              "%s", d.text);
    cr_expect(eq(int, (int)t->form, HEAD_TABLE_PRUNED));
    cr_expect(t->n_layers == 1 && t->n_heads == 2 && t->value[197] == 197.0 / 256);
    head_table_close(t);
}

Test(head_table, rejected_json)
{
    static const struct {
        const char *text, *said;
    } bad[] = {
        {"{}", "not a table of heads"},
        {"[1]", "neither JSON nor safetensors"},
        {"", "neither JSON nor safetensors"},
        {"0.5\t0.25\n", "--gates"},
        {"\x93NUMPY\x01", "kvfate gates convert"},
        {"PK\x03\x04", "save the table as JSON"},
        {"{\"unit\": \"entries\"}", "\"unit\" and \"budgets\" only"},
        {"{\"budgets\": [[1]]}", "\"unit\" must be"},
        {"{\"unit\": \"Entries\", \"budgets\": [[1]]}", "\"unit\" must be"},
        {"{\"unit\": 1, \"budgets\": [[1]]}", "\"unit\" must be"},
        {"{\"unit\": \"entries\", \"budgets\": [[1]], \"beta\": 2}",
         "\"unit\" and \"budgets\" only"},
        {"{\"unit\": \"entries\", \"budgets\": 3}", "not a list of layers"},
        {"{\"unit\": \"entries\", \"budgets\": []}", "not a list of layers"},
        {"{\"unit\": \"entries\", \"budgets\": [1, 2]}", "not a list of layers"},
        {"{\"unit\": \"entries\", \"budgets\": [[]]}", "1 layers of 0 heads"},
        {"{\"unit\": \"entries\", \"budgets\": [[1, 2], [3]]}", "layer 1 of \"budgets\""},
        {"{\"unit\": \"entries\", \"budgets\": [[1, 2], 3]}", "layer 1 of \"budgets\""},
        {"{\"unit\": \"entries\", \"budgets\": [[1, 0]]}", "layer 0, head 1: the value 0"},
        {"{\"unit\": \"entries\", \"budgets\": [[1], [-2]]}", "layer 1, head 0: the value -2"},
        {"{\"unit\": \"entries\", \"budgets\": [[2.5]]}", "an integer"},
        {"{\"unit\": \"entries\", \"budgets\": [[16777217]]}", "an integer"},
        {"{\"unit\": \"entries\", \"budgets\": [[\"3\"]]}", "the value nan"},
        {"{\"unit\": \"entries\", \"budgets\": [[null]]}", "the value nan"},
        {"{\"unit\": \"entries\", \"budgets\": [[NaN]]}", "/proc/self/fd"},
        {"{\"unit\": \"fraction\", \"budgets\": [[0]]}", "above 0"},
        {"{\"unit\": \"fraction\", \"budgets\": [[1, -0.5]]}", "layer 0, head 1"},
        {"{\"unit\": \"fraction\", \"budgets\": [[1e999]]}", "/proc/self/fd"},
        {"{\"0-0\": [1], \"0-0\": [2]}", "/proc/self/fd"}, /* a repeated key */
        {"{\"0-0\": [1], \"0-00\": [2]}", "\"0-00\""},
        {"{\"0-0\": [1], \"0\": [2]}", "LAYER-HEAD"},
        {"{\"0-0\": [1], \"0-1-1\": [2]}", "\"0-1-1\""},
        {"{\"0-0\": [1], \"1-1\": [2]}", "layer 0, head 1 has no score"},
        {"{\"0-0\": [1], \"x\": [2]}", "\"x\""},
        {"{\"0-0\": [1], \"0-1\": [-1]}", "\"0-1\" is not a list of scores"},
        {"{\"0-0\": [1], \"0-1\": []}", "\"0-1\" is not a list of scores"},
        {"{\"0-0\": [1], \"0-1\": 1}", "\"0-1\" is not a list of scores"},
        {"{\"0-0\": [1], \"0-1\": [true]}", "\"0-1\" is not a list of scores"},
        {"{\"0-0\": [1e308, 1e308]}", "\"0-0\" is not a list of scores"},
        {"{\"0-0\": [0], \"0-1\": [0]}", "all scores are 0"},
        {"{\"0-0\": [1e308], \"0-1\": [1e308]}", "the sum of the scores"},
        {"{\"9999999-9999999\": [1]}", "over the limit"},
        {"{\"99999999-0\": [1]}", "LAYER-HEAD"},
        {"{\"0\": [1, 1]}", "layer 0 lists head 1 twice"},
        {"{\"0\": [-1]}", "layer 0 has an item"},
        {"{\"0\": [0.5]}", "layer 0 has an item"},
        {"{\"0\": 1}", "layer 0 is not a list"},
        {"{\"0\": []}", "it names no head"},
        {"{\"00\": [1]}", "\"00\" is not a layer"},
        {"{\"layer\": [1]}", "\"layer\" is not a layer"},
        {"{\"prefix_matching\": {\"0\": [1]}}", "\"prefix_matching\" and \"copying\" only"},
        {"{\"prefix_matching\": {\"0\": [1]}, \"copying\": {}, \"x\": 1}", "only"},
        {"{\"prefix_matching\": [1], \"copying\": {}}", "not an object of layers"},
        {"{\"prefix_matching\": {\"0\": [1, 1]}, \"copying\": {}}", "twice"},
        {"{\"\\u0000\": [1]}", "/proc/self/fd"},
        {"{\"0-0\": [1]", "/proc/self/fd"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct head_table *t;
        struct kvf_diag d;
        int err = open_bytes(bad[i].text, strlen(bad[i].text), &t, &d);
        cr_expect(err == KVF_E_FORMAT || err == KVF_E_LIMIT, "%s: %d", bad[i].text, err);
        cr_expect(strstr(d.text, bad[i].said) != NULL, "%s: %s", bad[i].text, d.text);
        cr_expect(strstr(d.text, "/proc/self/fd") != NULL, "%s: %s", bad[i].text, d.text);
        cr_expect(zero(ptr, t));
    }
}

Test(head_table, rejected_tensors)
{
    static const float v[99 * 4] = {3, 4, 5, 6};
    static const float bad[] = {3, NAN, 5, INFINITY};
    static const struct {
        const char *meta, *name, *shape;
        const float *v;
        size_t n;
        const char *said;
    } c[] = {
        {"", "budgets", "[2, 2]", v, 4, "kvfate.unit"},
        {"\"kvfate.unit\": \"tokens\"", "budgets", "[2, 2]", v, 4, "'tokens'"},
        {"\"kvfate.unit\": \"entries\", \"kvfate.kind\": \"heads\"", "budgets", "[2, 2]", v, 4,
         "kvfate.kind"},
        {"\"kvfate.unit\": \"entries\"", "budget", "[2, 2]", v, 4, "\"budgets\" [layers, heads]"},
        {"\"kvfate.unit\": \"entries\"", "budgets", "[4]", v, 4, "F32 [layers, heads]"},
        {"\"kvfate.unit\": \"entries\"", "budgets", "[2, 2]", bad, 4, "layer 0, head 1"},
        {"\"kvfate.unit\": \"fraction\"", "budgets", "[1, 2]", bad + 2, 2, "layer 0, head 1"},
        {"\"kvfate.unit\": \"pruned\"", "budgets", "[2, 2]", v, 4, "[99, layers, KV heads]"},
        {"\"kvfate.unit\": \"pruned\"", "budgets", "[98, 1, 4]", v, 98 * 4, "[99, layers"},
        {"\"kvfate.unit\": \"pruned\"", "budgets", "[99, 1, 4]", v, 99 * 4, "from 0 to 1"},
    };
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        struct head_table *t;
        struct kvf_diag d;
        int err = open_tensor(c[i].meta, c[i].name, c[i].shape, c[i].v, c[i].n, &t, &d);
        cr_expect(eq(int, err, KVF_E_FORMAT), "%zu: %s", i, d.text);
        cr_expect(strstr(d.text, c[i].said) != NULL, "%zu: %s", i, d.text);
        cr_expect(zero(ptr, t));
    }
}

Test(head_table, files_that_are_not_there)
{
    struct head_table *t = NULL;
    struct kvf_diag d = {""};
    cr_expect(eq(int, head_table_open("/nowhere/x.json", &t, &d), KVF_E_IO));
    cr_expect(strstr(d.text, "/nowhere/x.json") != NULL, "%s", d.text);
    cr_expect(eq(int, head_table_open("/", &t, &d), KVF_E_IO));
    cr_expect(strstr(d.text, "not a regular file") != NULL, "%s", d.text);
    cr_expect(zero(ptr, t));
}
