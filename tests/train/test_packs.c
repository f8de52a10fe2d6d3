/* test_packs.c - packs: their contents compared with the text, their number with a brute-force
 * packing; also caches and invalid data. */
#include <dirent.h>

#include "base/buf.h"
#include "engine/train/packs.h"
#include "tests/folder.h"

static struct tokenizer *tok;

static void init(void)
{
    char path[4096];
    OWNED(gguf_close) struct gguf *g = NULL;
    const char *tiny = getenv("KVF_TINY");
    make_folder();
    cr_assert(tiny != NULL);
    snprintf(path, sizeof path, "%s/tiny0.gguf", tiny);
    succeeds(gguf_open(path, &g, &d));
    succeeds(tokenizer_create_as(g, NULL, &tok, &d));
}

static void fini(void)
{
    tokenizer_destroy(tok);
    remove_folder();
}

TestSuite(packs, .init = init, .fini = fini);

static const char *put(const char *name, const void *data, size_t n)
{
    const char *p = at(name);
    write_whole(p, data, n);
    return p;
}

static int open_part(const char *path, int length, enum packing packing, double from, double to,
                     const char *cache, struct packs **p, struct kvf_diag *d)
{
    struct packs_source s = {&path, 1, length, packing, from, to, cache};
    d->text[0] = 0;
    *p = NULL;
    return packs_open(tok, &s, p, d);
}

static struct packs *opened(const char *path, int length, enum packing packing)
{
    struct packs *p;
    succeeds(open_part(path, length, packing, 0, 1, NULL, &p, &d));
    return p;
}

/* Writes JSONL of n lines "<i> aaa..." with random lengths. */
static void make_lines(struct buf *b, int n, int most)
{
    struct rng r = rng_seeded(5);
    for (int i = 0; i < n; i++) {
        buf_printf(b, "{\"text\": \"%d:", i);
        for (int k = (int)rng_below(&r, (uint64_t)most); k > 0; k--)
            buf_char(b, "acegikmoq "[rng_below(&r, 10)]);
        buf_str(b, "\"}\n");
    }
}

static void spell(const struct pack *k, int from, int to, struct buf *out)
{
    for (int t = from; t < to; t++) {
        size_t len;
        const char *s = tokenizer_bytes(tok, k->ids[t], &len);
        buf_add(out, s, len);
    }
}

/* Writes the documents of a pack as "text|" and checks their starts. */
static void check_pack(const struct pack *k, int length, struct buf *out)
{
    cr_assert(k->n >= 2 && k->n <= length);
    for (int t = 0, start = 0; t < k->n; t++) {
        if (t == k->n - 1 || k->first[t + 1] != start) {
            spell(k, start, t + 1, out);
            buf_char(out, '|');
            cr_assert(t > start);
            start = t + 1;
        }
        cr_assert(k->first[t] <= t && (t + 1 < k->n ? k->first[t + 1] <= t + 1 : 1));
    }
}

Test(packs, every_document_is_there_once)
{
    enum { LINES = 300, LENGTH = 64 };
    SCOPED(buf_finish) struct buf b = {0}, all = {0};
    make_lines(&b, LINES, 60);
    const char *path = put("a.jsonl", b.data, b.len);
    OWNED(packs_close) struct packs *p = opened(path, LENGTH, PACK_DOCUMENTS);
    buf_char(&all, '|');
    int64_t tokens = 0;
    for (int i = 0; i < packs_count(p); i++) {
        struct pack k = packs_get(p, 1, 0, i);
        check_pack(&k, LENGTH, &all);
        tokens += k.n;
    }
    cr_expect(eq(i64, tokens, packs_tokens(p)));
    for (char *line = strtok(b.data, "\n"); line; line = strtok(NULL, "\n")) {
        char want[256];
        snprintf(want, sizeof want, "|%.*s|", (int)strlen(line) - 12, line + 10);
        const char *found = strstr(all.data, want);
        cr_expect(found != NULL, "%s", want);
        cr_expect(found == NULL || strstr(found + 1, want) == NULL, "%s", want);
    }
}

/* The number of packs equals that of best fit, implemented as a search through all packs. */
Test(packs, as_good_as_best_fit_by_brute_force)
{
    enum { LINES = 400, LENGTH = 50 };
    SCOPED(buf_finish) struct buf b = {0};
    int size[LINES], left[LINES], n = 0;
    make_lines(&b, LINES, 40);
    const char *path = put("a.jsonl", b.data, b.len);
    char *line = strtok(b.data, "\n");
    for (int i = 0; i < LINES; i++, line = strtok(NULL, "\n")) {
        int32_t *ids;
        tokenizer_encode(tok, line + 10, strlen(line) - 12, 0, &ids, &size[i], NULL);
        mem_free(ids);
        cr_assert(size[i] <= LENGTH && size[i] >= 2);
    }
    for (int want = LENGTH; want >= 2; want--)
        for (int i = 0; i < LINES; i++) {
            int best = -1;
            if (size[i] != want)
                continue;
            for (int k = 0; k < n; k++)
                if (left[k] >= want && (best < 0 || left[k] < left[best]))
                    best = k;
            if (best < 0)
                left[best = n++] = LENGTH;
            left[best] -= want;
        }
    OWNED(packs_close) struct packs *p = opened(path, LENGTH, PACK_DOCUMENTS);
    cr_expect(eq(int, packs_count(p), n));
    int spare[LENGTH + 1] = {0};
    for (int k = 0; k < n; k++) {
        spare[left[k]]++;
        spare[LENGTH - packs_get(p, 0, 0, k).n]--;
    }
    for (int k = 0; k <= LENGTH; k++)
        cr_expect(zero(int, spare[k]), "%d packs too many or few with %d left", spare[k], k);
}

Test(packs, long_documents_are_cut_and_short_ones_dropped)
{
    static const char text[] = "{\"text\": \"abcdefghijklmnopqrstuvwxyz\"}\n{\"text\": \"\"}\n\n"
                               "{\"text\": \"x\"}\n{\"question\": \"1+1\", \"answer\": \"2\"}\n";
    const char *path = put("a.jsonl", text, sizeof text - 1);
    SCOPED(buf_finish) struct buf all = {0};
    OWNED(packs_close) struct packs *p = opened(path, 8, PACK_DOCUMENTS);
    for (int i = 0; i < packs_count(p); i++) {
        struct pack k = packs_get(p, 1, 0, i);
        check_pack(&k, 8, &all);
    }
    cr_expect(strstr(all.data, "1+1\n2|") != NULL, "%s", all.data);
    cr_expect(strstr(all.data, "x|") == NULL || strstr(all.data, "|x|") == NULL, "%s", all.data);
    cr_expect(strncmp(all.data, "x|", 2) != 0);
}

Test(packs, runs_have_one_document_each)
{
    SCOPED(buf_finish) struct buf b = {0};
    make_lines(&b, 100, 60);
    const char *path = put("a.jsonl", b.data, b.len);
    OWNED(packs_close) struct packs *p = opened(path, 16, PACK_RUN);
    cr_expect(packs_count(p) > 20);
    for (int i = 0; i < packs_count(p); i++) {
        struct pack k = packs_get(p, 1, 0, i);
        cr_assert(eq(int, k.n, 16));
        for (int t = 0; t < 16; t++)
            cr_assert(zero(int, k.first[t]));
    }
}

Test(packs, shares_part_the_file)
{
    struct buf b = {0}, part[2] = {{0}, {0}};
    make_lines(&b, 200, 60);
    const char *path = put("a.jsonl", b.data, b.len);
    int64_t tokens = 0;
    for (int s = 0; s < 2; s++) {
        OWNED(packs_close) struct packs *p = NULL;
        struct kvf_diag d;
        cr_assert(
            zero(int, open_part(path, 80, PACK_DOCUMENTS, s ? 0.9 : 0, s ? 1 : 0.9, NULL, &p, &d)));
        buf_char(&part[s], '|');
        tokens += packs_tokens(p);
        for (int i = 0; i < packs_count(p); i++) {
            struct pack k = packs_get(p, 1, 0, i);
            check_pack(&k, 80, &part[s]);
        }
    }
    struct packs *p = opened(path, 80, PACK_DOCUMENTS);
    cr_expect(eq(i64, tokens, packs_tokens(p)));
    packs_close(p);
    size_t cut = (size_t)(0.9 * (double)b.len);
    for (size_t at = 0; at < b.len; at += strcspn(b.data + at, "\n") + 1) {
        char want[16];
        int number = atoi(b.data + at + 10), there = at >= cut;
        snprintf(want, sizeof want, "|%d:", number);
        cr_expect(strstr(part[there].data, want) != NULL, "%s", want);
        cr_expect(strstr(part[1 - there].data, want) == NULL, "%s", want);
    }
    buf_finish(&b);
    buf_finish(&part[0]);
    buf_finish(&part[1]);
}

/* The first line starts at byte 0, which is not before a boundary within this byte. */
Test(packs, a_share_of_less_than_a_byte_has_nothing)
{
    SCOPED(buf_finish) struct buf b = {0};
    struct packs *p, *rest;
    struct kvf_diag d;
    make_lines(&b, 20, 60);
    const char *path = put("a.jsonl", b.data, b.len);
    cr_expect(eq(int, open_part(path, 80, PACK_DOCUMENTS, 0, 1e-9, NULL, &p, &d), KVF_E_LIMIT));
    cr_assert(zero(int, open_part(path, 80, PACK_DOCUMENTS, 1e-9, 1, NULL, &rest, &d)));
    p = opened(path, 80, PACK_DOCUMENTS);
    cr_expect(eq(i64, packs_tokens(rest), packs_tokens(p)));
    packs_close(p);
    packs_close(rest);
}

/* Returns the tokens of lines first to last of make_lines(), joined as in a document. */
static int encode_lines(char *const *line, int first, int last, int32_t **ret_ids)
{
    SCOPED(buf_finish) struct buf text = {0};
    struct kvf_diag d;
    int n;
    for (int i = first; i <= last; i++) {
        buf_str(&text, i > first ? "\n\n" : "");
        buf_add(&text, line[i] + 10, strlen(line[i]) - 12);
    }
    cr_assert(zero(int, tokenizer_encode(tok, text.data, text.len, 0, ret_ids, &n, &d)));
    return n;
}

static bool has_run(struct packs *p, const int32_t *ids, int n)
{
    for (int i = 0; i < packs_count(p); i++) {
        struct pack k = packs_get(p, 1, 0, i);
        if (k.n == n && memcmp(k.ids, ids, (size_t)n * sizeof *ids) == 0)
            return true;
    }
    return false;
}

/* The length of each run of lines is once the pack length, so that the text is just long enough. */
Test(packs, runs_end_with_the_first_line_that_suffices)
{
    enum { LINES = 30 };
    SCOPED(buf_finish) struct buf b = {0};
    char *line[LINES];
    make_lines(&b, LINES, 30);
    const char *path = put("a.jsonl", b.data, b.len);
    for (int i = 0; i < LINES; i++)
        line[i] = strtok(i ? NULL : b.data, "\n");
    for (int length = 2; length < 50; length++) {
        OWNED(packs_close) struct packs *p = opened(path, length, PACK_RUN);
        int runs = 0;
        for (int first = 0, last = 0; last < LINES; last++) {
            OWNED(mem_free) int32_t *ids = NULL;
            if (encode_lines(line, first, last, &ids) >= length) {
                cr_expect(has_run(p, ids, length), "%d tokens from line %d", length, first);
                runs++;
                first = last + 1;
            }
        }
        cr_expect(eq(int, packs_count(p), runs));
    }
}

Test(packs, orders_are_permutations_of_seed_and_epoch)
{
    SCOPED(buf_finish) struct buf b = {0};
    make_lines(&b, 300, 60);
    const char *path = put("a.jsonl", b.data, b.len);
    struct packs *p = opened(path, 32, PACK_DOCUMENTS), *q = opened(path, 32, PACK_DOCUMENTS);
    int n = packs_count(p), moved = 0, other = 0;
    const int32_t **seen = MEM_NEW(const int32_t *, n);
    cr_expect(packs_hash(p) == packs_hash(q));
    for (int i = 0; i < n; i++) {
        seen[i] = packs_get(p, 7, 3, i).ids;
        for (int k = 0; k < i; k++)
            cr_assert(seen[k] != seen[i]);
    }
    for (int i = n - 1; i >= 0; i--) {
        moved += packs_get(p, 7, 4, i).ids != seen[i];
        other += packs_get(p, 8, 3, i).ids != seen[i];
        cr_expect(packs_get(p, 7, 3, i).ids == seen[i]);
        cr_expect(packs_get(q, 7, 3, i).n == packs_get(p, 7, 3, i).n);
    }
    cr_expect(moved > n / 2);
    cr_expect(other > n / 2);
    mem_free(seen);
    packs_close(p);
    packs_close(q);
}

static int count_files(const char *dir, char *ret_path)
{
    DIR *d = opendir(dir);
    int n = 0;
    for (struct dirent *e; d && (e = readdir(d)) != NULL;)
        if (e->d_name[0] != '.') {
            snprintf(ret_path, 512, "%s/%s", dir, e->d_name);
            n++;
        }
    if (d)
        closedir(d);
    return n;
}

Test(packs, a_damaged_cache_is_made_again)
{
    SCOPED(buf_finish) struct buf b = {0};
    size_t n, n_good;
    struct packs *p;
    struct kvf_diag d;
    char cache[128], file[512];
    make_lines(&b, 20, 30);
    const char *path = put("a.jsonl", b.data, b.len);
    snprintf(cache, sizeof cache, "%s/cache", folder);
    cr_assert(zero(int, open_part(path, 32, PACK_DOCUMENTS, 0, 1, cache, &p, &d)));
    uint64_t hash = packs_hash(p);
    packs_close(p);
    cr_assert(eq(int, count_files(cache, file), 1));
    OWNED(mem_free) char *good = read_whole(file, &n_good);
    for (size_t i = 0; i < n_good; i++) { /* flip a bit of each byte, and cut the file there */
        bool cut = i % 2;
        good[i] = (char)(good[i] ^ 1 << i % 8);
        write_whole(file, good, cut ? i : n_good);
        good[i] = (char)(good[i] ^ 1 << i % 8);
        cr_assert(zero(int, open_part(path, 32, PACK_DOCUMENTS, 0, 1, cache, &p, &d)));
        cr_assert(packs_hash(p) == hash, "byte %zu", i);
        packs_close(p);
        OWNED(mem_free) char *again = read_whole(file, &n); /* the file is intact again */
        cr_assert(eq(sz, n, n_good));
        cr_assert(zero(int, memcmp(again, good, n)), "byte %zu", i);
    }
    cr_assert(zero(int, open_part(path, 33, PACK_DOCUMENTS, 0, 1, cache, &p, &d)));
    packs_close(p);
    cr_expect(eq(int, count_files(cache, file), 2)); /* other settings use another file */
    cr_expect(zero(int, open_part(path, 32, PACK_DOCUMENTS, 0, 1, "/proc/none", &p, &d)));
    packs_close(p);
}

static void bad(const char *data, size_t n, int code, const char *word)
{
    for (int packing = 0; packing < 2; packing++) {
        struct packs *p;
        struct kvf_diag d;
        const char *path = put("bad", data, n);
        cr_expect(eq(int, open_part(path, 8, (enum packing)packing, 0, 1, NULL, &p, &d), code),
                  "%s: %s", word, d.text);
        cr_expect(p == NULL);
        cr_expect(strncmp(d.text, path, strlen(path)) == 0, "%s", d.text);
        cr_expect(strstr(d.text, word) != NULL, "%s lacks %s", d.text, word);
        cr_expect(strchr(d.text, '\n') == NULL);
    }
}

#define BAD(text, code, word) bad(text, sizeof(text) - 1, code, word)

Test(packs, bad_data_are_named_with_file_and_line)
{
    BAD("", KVF_E_LIMIT, "no ");
    BAD("\n\n", KVF_E_LIMIT, "no ");
    BAD("{\"text\": \"\"}\n", KVF_E_LIMIT, "no ");
    BAD("{\"text\": \"ab\"}\n{\"text\": \"a\n", KVF_E_FORMAT, "line 2");
    BAD("{\"text\": \"ab\"}\n\n{\"texts\": \"ab\"}\n", KVF_E_FORMAT, "line 3");
    BAD("{\"text\": 7}\n", KVF_E_FORMAT, "line 1");
    BAD("{\"question\": \"ab\"}\n", KVF_E_FORMAT, "\"answer\"");
    BAD("{\"text\": \"a\xff\"}\n", KVF_E_FORMAT, "line 1");
    BAD("{\"text\": \"ab\"}\n{\"text\": \"a\0b\"}\n", KVF_E_FORMAT, "line 2");
    BAD("plain text\nand \xc3( more\n", KVF_E_FORMAT, "line 2");
    BAD("plain text\n\nand \0 more\n", KVF_E_FORMAT, "line 3");
    struct packs *p;
    struct kvf_diag d;
    cr_expect(eq(int, open_part("/none/such", 8, PACK_RUN, 0, 1, NULL, &p, &d), KVF_E_IO));
    cr_expect(eq(int, open_part("/", 8, PACK_RUN, 0, 1, NULL, &p, &d), KVF_E_IO));
    cr_expect(eq(int, open_part("/none", 1, PACK_RUN, 0, 1, NULL, &p, &d), KVF_E_ARG));
    cr_expect(eq(int, open_part("/none", 8, PACK_RUN, 0.5, 0.5, NULL, &p, &d), KVF_E_ARG));
}

Test(packs, one_line_of_10_megabytes, .timeout = 60)
{
    enum { LONG = 10000000 };
    char *s = MEM_NEW(char, LONG + 32);
    strcpy(s, "{\"text\": \"");
    for (int i = 0; i < LONG; i++)
        s[10 + i] = "abc def gh"[i % 10];
    strcpy(s + 10 + LONG, "\"}\n");
    OWNED(packs_close) struct packs *p = opened(put("long", s, strlen(s)), 512, PACK_DOCUMENTS);
    cr_expect(packs_tokens(p) > LONG / 10);
    mem_free(s);
}
