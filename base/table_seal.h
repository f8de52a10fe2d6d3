/* table_seal.h - the checksum in a file of a table, and in that of a task.
 *
 * A seal is "DIGITS of N bytes": the checksum (checksum.h) and the number of the bytes that it was
 * made of.  TSV has it in a line "# checksum: SEAL", of all other bytes; JSON in its last member
 * "checksum", of all bytes before that; a CSV in the file beside it, likewise, of the bytes before
 * it and those of the CSV.  A table is also a text that people and scripts change.  A text with
 * more bytes than its seal states was changed on purpose, and is not compared.  One with fewer
 * bytes was cut short, and is rejected. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include <kvf/err.h>

#include "base/buf.h"

#define SEAL_LINE "# checksum: "
#define SEAL_MEMBER ",\"checksum\":\""
#define SEAL_KEY "checksum" /* of metadata */
enum { SEAL_LENGTH = 16 + 4 + 12 + 6 };

/* Bytes in pieces; zeroed at the start. */
struct seal {
    uint64_t hash, n;
    struct buf rest; /* of the block that is not full yet */
};

void seal_add(struct seal *s, const void *p, size_t n);
/* SEAL_LENGTH characters and a NUL; ends the seal.  KVF_OK or KVF_E_NOMEM. */
int seal_end(struct seal *s, char out[SEAL_LENGTH + 1]);

/* Appends the last member of JSON and its end; ends the seal.  KVF_OK or KVF_E_NOMEM. */
int seal_end_json(struct seal *s, struct buf *b);

/* Returns KVF_OK, also for a text without a seal or with more bytes than it states; KVF_E_CORRUPT
 * with a sentence. */
int seal_check_tsv(const char *text, size_t n, struct kvf_diag *d);
/* Checks a JSON text like seal_check_tsv; more: the other text that the seal covers, or NULL. */
int seal_check_json(const char *text, size_t n, const struct buf *more, struct kvf_diag *d);
