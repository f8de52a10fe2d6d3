/* test_work.c - files with correct checksums that are expensive to check: work and memory of a
 * check are bounded by the file size. */
#include <time.h>
#include <zstd.h>

#include "maker.h"

/* Makes a trace with a valid beginning and n notes with different keys. Their record numbers
 * increase, or are all 0. */
static unsigned char *many_notes(size_t n, bool rising, size_t *ret_len)
{
    enum { PAYLOAD = 16 };
    struct maker *m = start();
    size_t at = m->n;
    unsigned char *p = calloc(1, at + n * (RECORD_HEADER + PAYLOAD));
    memcpy(p, m->p, at);
    for (size_t i = 0; i < n; i++) {
        char text[PAYLOAD] = "";
        struct record r = {.type = REC_NOTE,
                           .seq = rising ? m->seq + i : 0,
                           .salt = SALT,
                           .offset = at,
                           .link = m->link,
                           .raw_len = PAYLOAD,
                           .stored_len = PAYLOAD};
        snprintf(text, sizeof text, "%07u", (unsigned)i % 10000000u);
        text[8] = '1';
        r.payload_crc = payload_crc(&r, text, PAYLOAD);
        m->link = record_header_write(p + at, &r);
        memcpy(p + at + RECORD_HEADER, text, PAYLOAD);
        at += RECORD_HEADER + PAYLOAD;
    }
    free(m);
    *ret_len = at;
    return p;
}

/* Returns how many bytes this process has read; 0 if the system does not report it. */
static unsigned long long bytes_read(void)
{
    unsigned long long n = 0;
    FILE *f = fopen("/proc/self/io", "r");
    if (f && fscanf(f, "rchar: %llu", &n) != 1)
        n = 0;
    if (f)
        fclose(f);
    return n;
}

/* Each header is a place to continue, but none of them can be the next record. Little is read again
 * at each. */
Test(work, headers_that_all_come_too_early)
{
    struct kvf_check c;
    size_t n;
    unsigned char *p = many_notes(1 << 16, false, &n);
    const char *path = as_file(p, n);
    free(p);
    unsigned long long before = bytes_read();
    cr_expect(eq(int, kvf_verify(path, 1, &c, NULL), KVF_E_CORRUPT));
    cr_expect(eq(u64, c.records, 2));
    cr_expect(lt(u64, bytes_read() - before, 64 * n));
}

/* Notes are compared with each other, but not all pairs. */
Test(work, a_hundred_thousand_notes)
{
    struct kvf_check c;
    size_t n;
    unsigned char *p = many_notes(100000, true, &n);
    const char *path = as_file(p, n);
    free(p);
    clock_t begin = clock();
    cr_expect(zero(int, kvf_verify(path, 1, &c, NULL)));
    double s = (double)(clock() - begin) / CLOCKS_PER_SEC;
    cr_expect(eq(u64, c.records, 100002));
    cr_expect(lt(dbl, s, 5), "%g s", s);
}

/* One chunk of 16 MiB of zeros, hundreds of times: each one is valid. */
Test(work, more_than_anybody_decodes)
{
    enum { RAW = 16 << 20, N = 300 };
    OWNED(free) struct maker *m = start();
    struct kvf_check c;
    struct kvf_diag d = {""};
    unsigned char *zeros = calloc(1, RAW), z[4096];
    size_t stored = ZSTD_compress(z, sizeof z, zeros, RAW, 3);
    struct record r = column(RAW / 4, RAW, stored, CODEC_SHUFFLE_ZSTD);
    free(zeros);
    for (int i = 0; i < N; i++)
        put(m, r, z, stored);
    cr_expect(zero(int, kvf_verify(as_file(m->p, m->n), 0, &c, &d)));
    clock_t begin = clock();
    cr_expect(eq(int, kvf_verify(as_file(m->p, m->n), 1, &c, &d), KVF_E_LIMIT));
    cr_expect(lt(dbl, (double)(clock() - begin) / CLOCKS_PER_SEC, 1));
    cr_expect(strstr(d.text, "no record of a run") != NULL, "%s", d.text);
}
