#include "base/table_seal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checksum.h"

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

/* Compares the seal at `at` with that of three pieces; where the number of bytes is another, the
 * text was changed on purpose. */
static int compare(const char *at, const char *p, size_t n, const char *q, size_t m,
                   const struct buf *more, const char *remove, struct kvf_diag *d)
{
    char made[SEAL_LENGTH + 1];
    struct seal s = {.hash = 0};
    seal_add(&s, p, n);
    seal_add(&s, q, m);
    if (more)
        seal_add(&s, more->data, more->len);
    int err = seal_end(&s, made);
    if (err || strncmp(at, made, SEAL_LENGTH) == 0)
        return err;
    bool other_size = strncmp(at + CHECKSUM_DIGITS, made + CHECKSUM_DIGITS,
                              SEAL_LENGTH - CHECKSUM_DIGITS)
                      != 0;
    if (other_size)
        return KVF_OK;
    return kvf_fail(d, KVF_E_CORRUPT,
                    "the table is damaged (its checksum differs); make it again, or, if it was "
                    "changed on purpose, remove %s",
                    remove);
}

int seal_check_tsv(const char *text, size_t n, struct kvf_diag *d)
{
    const size_t mark = strlen(SEAL_LINE), whole = mark + SEAL_LENGTH;
    for (size_t at = 0; at < n && text[at] == '#';) {
        const char *end = memchr(text + at, '\n', n - at);
        if (!end)
            return KVF_OK;
        size_t next = (size_t)(end - text) + 1;
        if (next - at == whole + 1 && memcmp(text + at, SEAL_LINE, mark) == 0)
            return compare(text + at + mark, text, at, text + next, n - next, NULL,
                           "its line \"# checksum\"", d);
        at = next;
    }
    return KVF_OK;
}

int seal_check_json(const char *text, size_t n, const struct buf *more, struct kvf_diag *d)
{
    const size_t tail = strlen(SEAL_MEMBER) + SEAL_LENGTH + strlen("\"}\n");
    const char *at = n > tail ? text + (n - tail) : NULL;
    if (!at || memcmp(at, SEAL_MEMBER, strlen(SEAL_MEMBER)) != 0)
        return KVF_OK;
    return compare(
        at + strlen(SEAL_MEMBER), text, n - tail, NULL, 0, more,
        more ? "the member \"checksum\" of the file beside it" : "its member \"checksum\"", d);
}
