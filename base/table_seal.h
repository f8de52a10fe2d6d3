/* table_seal.h - the checksum in files of tables and of tasks.
 *
 * A seal is "DIGITS of N bytes": the checksum (checksum.h) and the number of the bytes that it
 * covers. TSV has it in a line "# checksum: SEAL", which covers all other bytes. JSON has it in
 * its last member "checksum", which covers all bytes before it. A CSV has it in the second file,
 * which covers the bytes before the seal and those of the CSV. People and scripts edit tables,
 * too. A text with more bytes than its seal states was changed on purpose and is not compared. A
 * text with fewer bytes was truncated and is rejected.
 */
#ifndef KVF_BASE_TABLE_SEAL_H
#define KVF_BASE_TABLE_SEAL_H

#include <stdbool.h>
#include <stddef.h>

#include <kvf/err.h>

#include "base/buf.h"

#define SEAL_LINE "# checksum: "
#define SEAL_MEMBER ",\"checksum\":\""
#define SEAL_KEY "checksum" /* of metadata */
enum { SEAL_LENGTH = 16 + 4 + 12 + 6 };

/* A seal over bytes that are added in pieces; zero it first. */
struct seal {
    uint64_t hash, n;
    struct buf rest; /* bytes of the block that is not complete yet */
};

void seal_add(struct seal *s, const void *p, size_t n);
/* Writes SEAL_LENGTH characters and a NUL, and ends the seal. Returns KVF_OK or KVF_E_NOMEM. */
int seal_end(struct seal *s, char out[SEAL_LENGTH + 1]);

/* Appends the last member of a JSON object and its closing brace, and ends the seal. Returns
 * KVF_OK or KVF_E_NOMEM. */
int seal_end_json(struct seal *s, struct buf *b);

/* Checks the seal of a TSV. Returns KVF_OK, also without a seal or with more bytes than it states;
 * otherwise KVF_E_CORRUPT with a sentence. */
int seal_check_tsv(const char *text, size_t n, struct kvf_diag *d);
/* Checks the seal of a JSON text as seal_check_tsv() does. more: another text that the seal
 * covers, or NULL. */
int seal_check_json(const char *text, size_t n, const struct buf *more, struct kvf_diag *d);

#endif
