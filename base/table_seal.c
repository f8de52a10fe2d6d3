/* table_seal.c - the checksums in the files of tables and tasks (table_seal.h). */
#include "base/table_seal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
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

/* Compares the seal at `at`, which is followed by the text it should have, with the seal of three
 * pieces; where the number of bytes is another, the text was changed on purpose. */
static int compare(const char *at, bool intact, const char *p, size_t n, const char *q, size_t m,
                   const struct buf *more, const char *remove, struct kvf_diag *d)
{
    char made[SEAL_LENGTH + 1];
    struct seal s = {.hash = 0};
    seal_add(&s, p, n);
    seal_add(&s, q, m);
    if (more)
        seal_add(&s, more->data, more->len);
    int err = seal_end(&s, made);
    if (err || (intact && strncmp(at, made, SEAL_LENGTH) == 0))
        return err;
    bool other_size = strncmp(at + CHECKSUM_DIGITS, made + CHECKSUM_DIGITS,
                              SEAL_LENGTH - CHECKSUM_DIGITS)
                      != 0;
    if (other_size)
        return KVF_OK;
    return kvf_fail(d, KVF_E_CORRUPT,
                    "damaged (the checksum differs); make the file again, or, if it was changed on "
                    "purpose, remove %s",
                    remove);
}

/* The line is looked for by how it begins and by how it ends: damage can be anywhere in it. */
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
