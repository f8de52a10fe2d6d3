/* table_seal.c - the checksums in the files of tables and tasks (table_seal.h). */
#include "base/table_seal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/checksum.h"

enum { HEAD = 1 << 12 }; /* bytes in which the line of the seal begins: it is the second line */

void seal_add(struct seal *s, const void *p, size_t n)
{
    const char *at = p;
    s->n += n;
    while (n) {
        size_t room = CHECKSUM_BLOCK - s->rest.len, k = n < room ? n : room;
        buf_add(&s->rest, at, k);
        if (s->rest.err)
            return;
        if (s->rest.len == CHECKSUM_BLOCK) {
            s->hash = checksum(s->hash, s->rest.data, s->rest.len);
            buf_clear(&s->rest);
        }
        at += k;
        n -= k;
    }
}

int seal_end(struct seal *s, char out[SEAL_LENGTH + 1])
{
    char digits[CHECKSUM_DIGITS + 1];
    int err = s->rest.err;
    if (!err)
        s->hash = checksum(s->hash, s->rest.data, s->rest.len);
    checksum_text(s->hash, digits);
    snprintf(out, SEAL_LENGTH + 1, "%s of %12" PRIu64 " bytes", digits, s->n);
    buf_finish(&s->rest);
    return err;
}

int seal_end_json(struct seal *s, struct buf *b)
{
    char text[SEAL_LENGTH + 1];
    int err = seal_end(s, text);
    buf_printf(b, SEAL_MEMBER "%s\"}\n", text);
    return err ? err : b->err;
}

/* Returns the number of bytes that a seal states, or 0 if it has no such number. */
static uint64_t stated_bytes(const char *seal)
{
    const char *at = seal + CHECKSUM_DIGITS + strlen(" of "),
               *end = seal + SEAL_LENGTH - strlen(" bytes");
    uint64_t n = 0;
    while (at < end && *at == ' ')
        at++;
    for (; at < end && *at >= '0' && *at <= '9'; at++)
        n = n * 10 + (uint64_t)(*at - '0');
    return at == end ? n : 0;
}

/* Compares a seal with the three pieces that it was made of.  KVF_E_CORRUPT with a sentence if they
 * have fewer bytes than it states, or as many and another checksum.  More bytes were added on
 * purpose.  intact: the form of the seal is good; otherwise its number of bytes is ignored. */
static int compare(const char *seal, bool intact, const char *p, size_t n, const char *q, size_t m,
                   const struct buf *more, const char *remove, struct kvf_diag *d)
{
    char made[SEAL_LENGTH + 1];
    struct seal s = {.hash = 0};
    seal_add(&s, p, n);
    seal_add(&s, q, m);
    if (more)
        seal_add(&s, more->data, more->len);
    const uint64_t all = s.n, stated = intact ? stated_bytes(seal) : 0;
    int err = seal_end(&s, made);
    if (err || (intact && memcmp(seal, made, SEAL_LENGTH) == 0))
        return err;
    if (all < stated)
        return kvf_fail(d, KVF_E_CORRUPT,
                        "cut short (%" PRIu64 " of %" PRIu64 " bytes); make the file again, or, if "
                        "it was shortened on purpose, remove %s",
                        all, stated, remove);
    if (memcmp(seal + CHECKSUM_DIGITS, made + CHECKSUM_DIGITS, SEAL_LENGTH - CHECKSUM_DIGITS) != 0)
        return KVF_OK;
    return kvf_fail(d, KVF_E_CORRUPT,
                    "damaged (the checksum differs); make the file again, or, if it was changed on "
                    "purpose, remove %s",
                    remove);
}

/* Damage can be anywhere in the line, so its begin and its end both identify it. */
int seal_check_tsv(const char *text, size_t n, struct kvf_diag *d)
{
    const size_t mark = strlen(SEAL_LINE), whole = mark + SEAL_LENGTH;
    for (size_t at = 0; at < HEAD && at + whole < n; at++) {
        const char *seal = text + at + mark, *rest = seal + SEAL_LENGTH + 1;
        bool begins = memcmp(text + at, SEAL_LINE, mark) == 0;
        bool ends = memcmp(seal + CHECKSUM_DIGITS, " of ", 4) == 0
                    && memcmp(seal + SEAL_LENGTH - 6, " bytes", 6) == 0;
        if (begins || ends)
            return compare(seal, begins && ends && rest[-1] == '\n', text, at, rest,
                           (size_t)(text + n - rest), NULL, "its line \"# checksum\"", d);
    }
    return KVF_OK;
}

int seal_check_json(const char *text, size_t n, const struct buf *more, struct kvf_diag *d)
{
    const size_t tail = strlen(SEAL_MEMBER) + SEAL_LENGTH + strlen("\"}\n");
    const char *at = n > tail ? text + (n - tail) : NULL;
    if (!at || memcmp(at, SEAL_MEMBER, strlen(SEAL_MEMBER)) != 0)
        return KVF_OK;
    return compare(at + strlen(SEAL_MEMBER), true, text, n - tail, NULL, 0, more,
                   "the member \"checksum\" of the JSON", d);
}
