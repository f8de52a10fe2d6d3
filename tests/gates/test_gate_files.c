/* test_gate_files.c - damaged, hostile and foreign gate files are rejected with a message, or are
 * harmless. $KVF_GATES has one small file of each layout. */
#include "file.h"

static const char *const layouts[] = {"rg",   "rg2",    "rg3", "rg10", "linear", "rgkv",
                                      "wgkv", "locret", "duo", "seer", "values"};
enum { N_LAYOUTS = sizeof layouts / sizeof *layouts };

static struct gates_model small_model(void)
{
    return (struct gates_model){2, 3, 4, 2, 2, 1e-5f, 1e4, "feed", reference()};
}

struct bytes {
    unsigned char *p;
    size_t n, header; /* bytes before the tensors */
};

static struct bytes load(const char *layout)
{
    char path[4096];
    struct bytes b = {NULL, 0, 0};
    const char *dir = getenv("KVF_GATES");
    cr_assert(dir != NULL, "KVF_GATES is not set");
    snprintf(path, sizeof path, "%s/%s.safetensors", dir, layout);
    FILE *f = fopen(path, "rb");
    cr_assert(f != NULL, "%s", path);
    b.p = MEM_NEW(unsigned char, 1 << 16);
    b.n = fread(b.p, 1, 1 << 16, f);
    fclose(f);
    b.header = 8 + b.p[0] + 256u * b.p[1];
    return b;
}

/* Returns the header's text; free with mem_free(). */
static char *header_of(const struct bytes *b)
{
    char *s = MEM_NEW(char, b->header - 8 + 1);
    return memcpy(s, b->p + 8, b->header - 8);
}

/* Checks that the file is rejected with a message that contains the word ("" for any). */
static void refused(const struct bytes *b, const char *header, const struct gates_model *m,
                    const char *word)
{
    SCOPED(buf_finish) struct buf f = {0};
    struct kvf_diag d;
    put_file(&f, header, b->p + b->header, b->n - b->header);
    int err = try_use(f.data, f.len, m, &d);
    cr_expect(err != KVF_OK && strstr(d.text, word), "%d \"%s\" lacks \"%s\" for %.300s", err,
              d.text, word, header);
}

/* Returns a copy of the text with the n bytes at `at` replaced by another word. */
static char *with(const char *text, size_t at, size_t n, const char *word)
{
    SCOPED(buf_finish) struct buf b = {0};
    buf_add(&b, text, at);
    buf_str(&b, word);
    buf_str(&b, text + at + n);
    char *s = mem_strdup(b.data);
    return s;
}

Test(gate_files, good_ones_open)
{
    struct gates_model m = small_model();
    for (int i = 0; i < N_LAYOUTS; i++) {
        struct bytes b = load(layouts[i]);
        struct gates *g;
        struct kvf_diag d;
        cr_assert(zero(int, try_open(b.p, b.n, &m, &g, &d)), "%s", d.text);
        use(g, &m);
        cr_expect(zero(int, strcmp(gates_layout(g), layouts[i])));
        cr_expect(gates_bytes(g) >= 4 * 2);
        gates_close(g);
        mem_free(b.p);
    }
    gates_close(NULL);
}

Test(gate_files, cut_at_every_byte)
{
    struct gates_model m = small_model();
    for (int i = 0; i < N_LAYOUTS; i++) {
        struct bytes b = load(layouts[i]);
        struct kvf_diag d;
        for (size_t n = 0; n < b.n; n++) {
            int err = try_use(b.p, n, &m, &d);
            cr_assert(eq(int, err, KVF_E_FORMAT), "%s, %zu bytes: %s", layouts[i], n, d.text);
        }
        mem_free(b.p);
    }
}

/* A wrong length field is always detected. A wrong byte in the header must only do no harm. */
Test(gate_files, every_byte_of_the_header_is_wrong_once, .timeout = 60)
{
    static const unsigned char other[] = {0, 0xff, '0', '9', '"', '{', '}', '[', ']', ',', ' '};
    struct gates_model m = small_model();
    int opened = 0, tried = 0;
    for (int i = 0; i < N_LAYOUTS; i++) {
        struct bytes b = load(layouts[i]);
        struct kvf_diag d;
        for (size_t at = 0; at < b.header; at++)
            for (size_t k = 0; k < sizeof other + 2; k++) {
                unsigned char was = b.p[at];
                b.p[at] = k < sizeof other ? other[k] : (unsigned char)(was ^ (k & 1 ? 1 : 128));
                int err = b.p[at] == was ? KVF_E_FORMAT : try_use(b.p, b.n, &m, &d);
                tried++;
                opened += !err;
                cr_assert(err || at >= 8, "%s: byte %zu", layouts[i], at);
                b.p[at] = was;
            }
        mem_free(b.p);
    }
    fprintf(stderr, "%d wrong bytes, %d of them harmless\n", tried, opened);
    cr_expect(opened < tried / 5);
}

Test(gate_files, numbers_that_are_none)
{
    static const unsigned nans[] = {0x7fc00000, 0x7f800000, 0xff800000};
    struct gates_model m = small_model();
    for (int i = 0; i < N_LAYOUTS; i++) {
        struct bytes b = load(layouts[i]);
        struct kvf_diag d;
        for (size_t at = b.header; at < b.n; at += 4) {
            unsigned was;
            memcpy(&was, b.p + at, 4);
            memcpy(b.p + at, &nans[at / 4 % 3], 4);
            int err = try_use(b.p, b.n, &m, &d);
            cr_assert(err == KVF_E_FORMAT && strstr(d.text, "finite"), "%s: %s", layouts[i],
                      d.text);
            memcpy(b.p + at, &was, 4);
        }
        mem_free(b.p);
    }
}

/* Changes to one field of a tensor's entry, and the expected word in the message. */
static const struct wrong {
    const char *key, *value, *word;
} wrongs[] = {
    {"dtype", "\"F64\"", "F32, F16 and BF16"},
    {"dtype", "\"I32\"", "F32, F16 and BF16"},
    {"dtype", "\"f32\"", "F32, F16 and BF16"},
    {"dtype", "32", "F32, F16 and BF16"},
    {"dtype", "\"F16\"", "bytes"},
    {"dtype", "\"BF16\"", "bytes"},
    {"dtype", "null", "type"},
    {"shape", "[]", "bytes"},
    {"shape", "[0]", "usable"},
    {"shape", "[-1]", "usable"},
    {"shape", "[1.5]", "usable"},
    {"shape", "[\"2\"]", "usable"},
    {"shape", "7", "usable"},
    {"shape", "[1,1,1,1,1]", "usable"},
    {"shape", "[9223372036854775807, 4]", "usable"},
    {"shape", "[4294967296, 4294967296]", "usable"},
    {"shape", "[1e300]", "usable"},
    {"shape", "[1099511627777]", "usable"},
    {"shape", "[1099511627776]", "bytes"},
    {"shape", "[null, 2]", "usable"},
    {"shape", "{\"a\": 1}", "usable"},
    {"data_offsets", "[]", "outside"},
    {"data_offsets", "[0]", "outside"},
    {"data_offsets", "[-4, 0]", "outside"},
    {"data_offsets", "[8, 4]", "outside"},
    {"data_offsets", "[0, 1e18]", "outside"},
    {"data_offsets", "[1e18, 1e18]", "outside"},
    {"data_offsets", "[0.5, 4.5]", "outside"},
    {"data_offsets", "[0, 1000000]", "outside"},
    {"data_offsets", "[0, 0, 0]", "outside"},
    {"data_offsets", "\"0\"", "outside"},
    {"data_offsets", "[0, 0]", "bytes"},
    {"data_offsets", "[0, 3]", "bytes"},
    {"Dtype", NULL, "type"},
    {"Shape", NULL, "shape"},
    {"Data_offsets", NULL, "outside"},
};

/* Applies the change to the entry that begins at `entry`. If value is NULL, the key gets a capital
 * letter. */
static char *apply(const char *header, const char *entry, const struct wrong *w)
{
    char key[32];
    snprintf(key, sizeof key, "\"%s\": ", w->key);
    key[1] |= 0x20;
    const char *p = strstr(entry, key);
    if (!w->value)
        return with(header, (size_t)(p + 1 - header), 1, (char[]){w->key[0], 0});
    p += strlen(key);
    const char *end = *p == '[' ? strchr(p, ']') : strchr(p + 1, '"');
    return with(header, (size_t)(p - header), (size_t)(end + 1 - p), w->value);
}

Test(gate_files, every_field_of_every_tensor)
{
    struct gates_model m = small_model();
    for (int i = 0; i < N_LAYOUTS; i++) {
        struct bytes b = load(layouts[i]);
        char *header = header_of(&b);
        int n = 0;
        for (const char *p = header; (p = strstr(p, ": {\"dtype\"")) != NULL; p++, n++) {
            for (size_t k = 0; k < sizeof wrongs / sizeof *wrongs; k++) {
                OWNED(mem_free) char *bad = apply(header, p, &wrongs[k]);
                refused(&b, bad, &m, wrongs[k].word);
            }
            /* With another name, one tensor is missing and one is unknown. */
            char *bad = with(header, (size_t)(p - 2 - header), 1, "Z");
            refused(&b, bad, &m, "missing");
            mem_free(bad);
        }
        cr_expect(n >= 1);
        mem_free(header);
        mem_free(b.p);
    }
}

/* A shape with the expected number of elements but different dimensions. */
Test(gate_files, shapes_are_those_of_the_model)
{
    struct gates_model m = small_model();
    for (int i = 0; i < N_LAYOUTS; i++) {
        struct bytes b = load(layouts[i]);
        char *header = header_of(&b);
        for (const char *p = header; (p = strstr(p, "\"shape\": [")) != NULL; p += 9) {
            OWNED(mem_free) char *bad = with(header, (size_t)(p + 10 - header), 0, "1, ");
            refused(&b, bad, &m, "");
        }
        mem_free(header);
        mem_free(b.p);
    }
}

Test(gate_files, gates_of_another_model)
{
    static const struct {
        const char *layout;
        int field, by;
    } cases[] = {
        {"rg", 0, 1},      {"rg", 0, -1},     {"rg", 1, 1},     {"rg", 3, 1},     {"rg10", 0, 1},
        {"rg10", 0, -1},   {"rg10", 1, -1},   {"rg10", 3, -1},  {"linear", 0, 1}, {"linear", 0, -1},
        {"linear", 1, 1},  {"linear", 3, 1},  {"rg2", 0, 1},    {"rg2", 0, -1},   {"rg2", 3, 1},
        {"rg2", 4, 1},     {"rg3", 0, 1},     {"rg3", 0, -1},   {"rg3", 3, 1},    {"rg3", 4, 1},
        {"rgkv", 0, 1},    {"rgkv", 0, -1},   {"rgkv", 3, 1},   {"rgkv", 4, 1},   {"wgkv", 0, 1},
        {"wgkv", 0, -1},   {"wgkv", 3, 1},    {"wgkv", 4, 1},   {"locret", 0, 1}, {"locret", 2, 1},
        {"locret", 3, -1}, {"locret", 4, 2},  {"duo", 0, 1},    {"duo", 0, -1},   {"duo", 3, 1},
        {"seer", 0, 1},    {"seer", 0, -1},   {"seer", 2, 2},   {"seer", 3, 2},   {"seer", 4, -1},
        {"values", 0, 1},  {"values", 0, -1}, {"values", 3, -1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct bytes b = load(cases[i].layout);
        struct gates_model m = small_model();
        struct kvf_diag d;
        int *const field[] = {&m.n_layers, &m.d_model, &m.n_heads, &m.n_kv_heads, &m.head_dim};
        *field[cases[i].field] += cases[i].by;
        cr_expect(eq(int, try_use(b.p, b.n, &m, &d), KVF_E_FORMAT), "case %zu", i);
        cr_expect(strstr(d.text, "tensor") != NULL, "%s", d.text);
        m = small_model();
        for (int k = 0; k < 3; k++) {
            m.hash = (const char *[]){"beef", "feed0", "zeal"}[k];
            cr_expect(eq(int, try_use(b.p, b.n, &m, &d), KVF_E_ARG), "case %zu", i);
            cr_expect(strstr(d.text, m.hash) && strstr(d.text, "feed,"), "%s", d.text);
        }
        m.hash = NULL;
        cr_expect(zero(int, try_use(b.p, b.n, &m, &d)));
        mem_free(b.p);
    }
}

Test(gate_files, metadata_that_cannot_be_meant)
{
    static const struct {
        const char *layout, *from, *to, *word;
    } cases[] = {
        {"rg", "\"kvfate.kind\"", "\"kind\"", "lack kvfate.kind"},
        {"rg", "\"kvfate.layout\"", "\"layout\"", "lack kvfate.layout"},
        {"rg", "\"retention\"", "\"retain\"", "'retain'"},
        {"rg", "\"retention\"", "\"write\"", "do not match"},
        {"rg", "\"rg\"", "\"rg4\"", "'rg4'"},
        {"rg", "\"rg\"", "\"rg3\"", "missing"},
        {"rg3", "\"rg3\"", "\"rg2\"", "missing"},
        {"rg2", "\"rg2\"", "\"rg\"", "tensor"},
        {"rg", "\"rg\"", "\"rg10\"", "missing"},
        {"rg10", "\"rg10\"", "\"rg\"", "tensor"},
        {"rg", "\"rg\"", "\"linear\"", "tensor"},
        {"rg", "\"rg\"", "\"rgkv\"", "tensor"},
        {"rgkv", "\"rgkv\"", "\"rg\"", "tensor"},
        {"linear", "\"linear\"", "\"rg\"", "missing"},
        {"linear", "\"linear\"", "\"linear\", \"kvfate.activation\": \"silu\"", "means nothing"},
        {"linear", "\"linear\"", "\"linear\", \"kvfate.key_order\": \"pairs\"", "means nothing"},
        {"values", "\"retention\"", "\"heads\"", "do not match"},
        {"values", "\"retention\"", "\"write\"", "from 0 to 1"},
        {"duo", "\"heads\"", "\"blocks\"", "do not match"},
        {"rg", "\"rg\"", "\"rg\", \"kvfate.activaton\": \"silu\"", "kvfate.activaton"},
        {"rg", "\"rg\"", "\"rg\", \"kvfate.activation\": \"tanh\"", "'tanh'"},
        {"rg", "\"rg\"", "\"rg\", \"kvfate.z\": \"f16\"", "'f16'"},
        {"rg", "\"rg\"", "\"rg\", \"kvfate.key_order\": \"pairs\"", "means nothing"},
        {"wgkv", "\"wgkv\"", "\"wgkv\", \"kvfate.z\": \"bf16\"", "means nothing"},
        {"wgkv", "\"wgkv\"", "\"wgkv\", \"kvfate.key_order\": \"x\"", "'x'"},
        {"seer", "\"seer\"", "\"seer\", \"kvfate.block\": \"0\"", "'0'"},
        {"seer", "\"seer\"", "\"seer\", \"kvfate.block\": \"64k\"", "'64k'"},
        {"seer", "\"seer\"", "\"seer\", \"kvfate.block\": \"\"", "''"},
        {"duo", "\"duo\"", "\"duo\", \"kvfate.block\": \"64\"", "means nothing"},
        {"rg", "\"rg\"", "1", "not text"},
        {"rg", "{\"__metadata__\": {", "{\"__metadata__\": [], \"__metadata2__\": {", "metadata"},
        {"rg", "{\"__metadata__\"", "{\"_metadata_\"", "type"},
        {"rg", "\"rg\"", "\"rg\", \"kvfate.kind\": \"retention\"", "repeats"},
        {"rg", "\"rg\"", "\"rg\"}, \"__metadata__\": {\"a\": \"b\"", "repeats"},
        {"rg", "\"rg\"", "\"rg\", \"a\": [[[[]]]]", "not text"},
    };
    struct gates_model m = small_model();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct bytes b = load(cases[i].layout);
        char *header = header_of(&b);
        const char *p = strstr(header, cases[i].from);
        cr_assert(p != NULL, "case %zu", i);
        char *bad = with(header, (size_t)(p - header), strlen(cases[i].from), cases[i].to);
        refused(&b, bad, &m, cases[i].word);
        mem_free(bad);
        mem_free(header);
        mem_free(b.p);
    }
}

#define HEADS_META "\"__metadata__\": {\"kvfate.kind\": \"heads\", \"kvfate.layout\": \"duo\"}"
#define T4(name, a, b)                                                                             \
    ", \"" name "\": {\"dtype\": \"F32\", \"shape\": [2, 2], "                                     \
    "\"data_offsets\": [" #a ", " #b "]}"

Test(gate_files, tensors_fill_the_file_without_gap_or_overlap)
{
    static const float data[16] = {0};
    static const struct {
        const char *header, *word;
        size_t n;
    } cases[] = {
        {"{" HEADS_META T4("duo.alpha", 0, 16) "}", "", 16},
        {"{" HEADS_META T4("duo.alpha", 0, 16) "}", "belong to no tensor", 20},
        {"{" HEADS_META T4("duo.alpha", 4, 20) "}", "directly follow", 20},
        {"{" HEADS_META T4("duo.alpha", 0, 16) T4("more", 0, 16) "}", "overlaps", 16},
        {"{" HEADS_META T4("duo.alpha", 0, 16) T4("more", 8, 24) "}", "overlaps", 24},
        {"{" HEADS_META T4("duo.alpha", 0, 16) T4("more", 20, 36) "}", "directly follow", 36},
        {"{" HEADS_META T4("duo.alpha", 0, 16) T4("more", 16, 32) "}", "not of the layout", 32},
        {"{" HEADS_META T4("duo.alpha", 0, 16) T4("duo.alpha", 16, 32) "}", "repeats", 32},
        {"{" HEADS_META T4("", 0, 16) "}", "name", 16},
        {"{" HEADS_META ", \"duo.alpha\": 4}", "type", 16},
        {"{" HEADS_META "}", "belong to no tensor", 16},
        {"{" HEADS_META "}", "missing", 0},
        {"{}", "metadata", 0},
        {"[4, \"duo.alpha\"]", "not a safetensors file", 16},
        {"{" HEADS_META
         ", \"h\": {\"dtype\": \"F16\", \"shape\": [1], \"data_offsets\": [0, 2]}" T4("duo.alpha",
                                                                                      2, 18) "}",
         "aligned", 18},
        {"{" HEADS_META T4("duo.alpha", 0, 16) "} {}", "text after", 16},
        {"{" HEADS_META T4("duo.alpha\\ud800", 0, 16) "}", "surrogate", 16},
        {"{" HEADS_META T4("\xff", 0, 16) "}", "UTF-8", 16},
    };
    struct gates_model m = small_model();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        SCOPED(buf_finish) struct buf f = {0};
        struct kvf_diag d;
        put_file(&f, cases[i].header, data, cases[i].n);
        int err = try_use(f.data, f.len, &m, &d);
        cr_expect(err ? i > 0 : i == 0, "case %zu: %s", i, d.text);
        cr_expect(strstr(d.text, cases[i].word) != NULL, "case %zu: %s", i, d.text);
    }
}

Test(gate_files, given_numbers_are_in_their_range)
{
    static const float outside[] = {1.0001f, -1e-9f};
    struct gates_model m = small_model();
    struct kvf_diag d;
    struct bytes b = load("duo");
    for (int i = 0; i < 2; i++) {
        memcpy(b.p + b.n - 4, &outside[i], 4);
        cr_expect(eq(int, try_use(b.p, b.n, &m, &d), KVF_E_FORMAT));
        cr_expect(strstr(d.text, "from 0 to 1") != NULL, "%s", d.text);
    }
    mem_free(b.p);
    b = load("values"); /* for retention */
    memcpy(b.p + b.n - 4, &(float){1e-9f}, 4);
    cr_expect(eq(int, try_use(b.p, b.n, &m, &d), KVF_E_FORMAT));
    cr_expect(strstr(d.text, "at most 0") != NULL, "%s", d.text);
    mem_free(b.p);
}

Test(gate_files, what_is_no_file)
{
    struct gates_model m = small_model();
    struct gates *g = NULL;
    struct kvf_diag d;
    cr_expect(eq(int, gates_open("/no/such/file", &m, &g, &d), KVF_E_IO));
    cr_expect(strstr(d.text, "No such file") != NULL, "%s", d.text);
    cr_expect(eq(int, gates_open("/", &m, &g, &d), KVF_E_IO));
    cr_expect(strstr(d.text, "regular") != NULL, "%s", d.text);
    cr_expect(eq(int, gates_open("/dev/null", &m, &g, NULL), KVF_E_IO));
    cr_expect(g == NULL);
}

/* The largest possible length field, and a header over the limit. */
Test(gate_files, header_lengths)
{
    struct gates_model m = small_model();
    struct kvf_diag d;
    static const uint64_t lengths[] = {0,      1, UINT64_MAX, UINT64_MAX - 7, (uint64_t)1 << 63,
                                       1 << 30};
    struct bytes b = load("rg");
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        memcpy(b.p, &lengths[i], 8);
        cr_expect(eq(int, try_use(b.p, b.n, &m, &d), KVF_E_FORMAT), "%s", d.text);
    }
    mem_free(b.p);
    size_t n = (size_t)20 << 20;
    OWNED(mem_free) unsigned char *big = MEM_NEW(unsigned char, n);
    memset(big, ' ', n);
    memcpy(big, &(uint64_t){n - 8}, 8);
    memcpy(big + 8, "{}", 2);
    cr_expect(eq(int, try_use(big, n, &m, &d), KVF_E_LIMIT), "%s", d.text);
}
