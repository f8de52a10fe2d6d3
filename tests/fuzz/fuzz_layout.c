/* fuzz_layout.c - the fixed parts of a trace. An accepted header, footer, index entry or block is
 * equal after it is written again, and checksums do not depend on how the bytes are split. The
 * input is the difference from a valid header, and checksums are corrected so that it can be
 * accepted. */
#include "fuzz.h"
#include "libtrace/crc32c.h"
#include "libtrace/layout.h"
#include "source.h"

static void differ(unsigned char *p, const unsigned char *from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        p[i] ^= from[i];
}

static void check_file_header(unsigned char *p, bool wrong)
{
    struct file_header f, g;
    unsigned char again[FILE_HEADER];
    file_header_write(again, &(struct hash128){.low = 7});
    differ(p, again, FILE_HEADER);
    put_le(p + 60, crc32c(0, p, 60) ^ wrong, 4);
    int err = file_header_read(p, &f);
    MUST(err == KVF_OK || err == KVF_E_FORMAT || err == KVF_E_CORRUPT || err == KVF_E_VERSION);
    MUST(err || !wrong);
    if (err)
        return;
    MUST(f.hash == hash64(p, FILE_HEADER));
    if (!f.chained)
        return;
    file_header_write(again, &f.id);
    MUST(file_header_read(again, &g) == KVF_OK && g.chained && g.salt == f.salt);
    MUST(memcmp(&g.id, &f.id, sizeof g.id) == 0);
}

static void check_record_header(unsigned char *p, uint64_t offset, bool chained)
{
    struct record r, again;
    unsigned char out[RECORD_HEADER];
    size_t size = header_size(chained);
    uint32_t salt = (uint32_t)get_le(p + 56, 4), guess;
    bool guess_chained;
    put_le(p + 68, offset, 8);
    put_le(p, 0x52465ac5u, 4);
    put_le(p + 4, size, 2);
    put_le(p + size - 4, crc32c(0, p, size - 4), 4);
    MUST(!record_header_read(p, offset, salt ^ 1, chained, &r)); /* of another run */
    MUST(!record_header_read(p, offset + 8, salt, chained, &r)); /* at another place */
    record_header_guess(p, &guess, &guess_chained);
    if (!record_header_read(p, offset, salt, chained, &r) || !chained)
        return;
    MUST(r.offset == offset && r.salt == salt);
    r.hash = record_header_write(out, &r);
    MUST(record_header_read(out, offset, salt, true, &again));
    MUST(record_same(&r, &again) && again.hash == r.hash && record_compare(&r, &again) == 0);
}

static void check_footer(unsigned char *p, bool wrong)
{
    struct footer f, again;
    unsigned char out[FOOTER];
    footer_write(out, &(struct footer){.clean = true});
    differ(p, out, FOOTER);
    uint32_t salt = (uint32_t)get_le(p + 36, 4);
    put_le(p + 60, crc32c(0, p, 60) ^ wrong, 4);
    bool ok = footer_read(p, salt, &f);
    MUST(!ok || !wrong);
    if (!ok)
        return;
    MUST(!footer_read(p, salt ^ 1, &again));
    footer_write(out, &f);
    MUST(footer_read(out, salt, &again) && again.index_offset == f.index_offset
         && again.n_records == f.n_records && again.last == f.last && again.clean == f.clean
         && memcmp(&again.digest, &f.digest, sizeof f.digest) == 0);
}

static void check_entries(const unsigned char *p, const unsigned char *q)
{
    struct record a, b, again;
    unsigned char out[INDEX_ENTRY];
    index_entry_read(p, true, &a);
    index_entry_read(q, true, &b);
    index_entry_write(out, &a);
    index_entry_read(out, true, &again);
    MUST(record_same(&a, &again) && record_compare(&a, &again) == 0);
    int ab = record_compare(&a, &b), ba = record_compare(&b, &a);
    MUST((ab > 0) == (ba < 0) && (ab == 0) == (ba == 0));
    index_entry_read(p, false, &a);
}

static void check_blob(unsigned char *p, const struct source *s)
{
    struct record r = {.type = REC_BLOB, .layer = 1, .head0 = 2, .t0 = 3};
    struct kvf_blob b;
    unsigned char again[BLOB_HEADER];
    put_le(p + 72, hash64(p, 72), 8);
    struct source rest = *s;
    r.raw_len = take(&rest, 3);
    if (!blob_header_read(p, &r, &b))
        return;
    MUST(kvf_blob_size(&b) == r.raw_len && r.raw_len > 0 && r.raw_len <= KVF_MAX_BLOB);
    blob_header_write(again, &b);
    MUST(memcmp(again, p, BLOB_HEADER) == 0);
}

/* Computes the checksum bit by bit, as the standard defines it. */
static uint32_t crc_by_bits(const uint8_t *p, size_t n)
{
    uint32_t c = UINT32_MAX;
    for (size_t i = 0; i < n; i++) {
        c ^= p[i];
        for (int k = 0; k < 8; k++)
            c = c >> 1 ^ (c & 1 ? 0x82f63b78u : 0);
    }
    return ~c;
}

static void check_sums(const struct source *s, size_t cut)
{
    uint32_t whole = crc32c(0, s->p, s->n);
    cut = s->n ? cut % s->n : 0;
    MUST(crc32c(crc32c(0, s->p, cut), s->p + cut, s->n - cut) == whole);
    MUST(crc_by_bits(s->p, s->n) == whole);
}

/* Checks that the reader accepts a list exactly if it fulfils the definition of lists. */
static void check_list(struct source *s)
{
    struct kvf_interval list[8];
    uint32_t n = (uint32_t)(take(s, 1) % 9), token = (uint32_t)take(s, 1),
             steps = (uint32_t)take(s, 1);
    bool rises = true;
    for (uint32_t i = 0; i < n; i++) {
        list[i].first = (uint32_t)take(s, 1);
        list[i].last = (uint32_t)take(s, 1);
        rises = rises && list[i].first <= list[i].last && list[i].first >= token
                && list[i].last < steps && (i == 0 || list[i].first > list[i - 1].last + 1);
    }
    MUST(trace_list_rises(list, n, token, steps) == rises);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct source s = {data, n};
    unsigned char p[128] = {0};
    unsigned what = (unsigned)take(&s, 1), more = (unsigned)take(&s, 1);
    if (n > 512)
        return 0;
    memcpy(p, s.p, s.n < sizeof p ? s.n : sizeof p);
    if (what % 8 == 0)
        check_file_header(p, more % 16 == 1);
    else if (what % 8 == 1)
        check_record_header(p, (uint64_t)more << (more % 32), what & 8);
    else if (what % 8 == 2)
        check_footer(p, more % 16 == 1);
    else if (what % 8 == 3)
        check_entries(p, p + INDEX_ENTRY);
    else if (what % 8 == 4)
        check_blob(p, &s);
    else if (what % 8 == 5)
        check_list(&s);
    else
        check_sums(&s, more);
    return 0;
}
