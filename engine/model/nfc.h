/* nfc.h - Unicode's normal form C, which some vocabularies ask for; private to engine/model. */
#pragma once

#include <stdbool.h>

#include "base/buf.h"

/* Work space that grows as needed; zeroed to begin with. */
struct nfc {
    struct buf chars; /* int32 code points of the stretch that is made */
    struct buf keys;  /* uint64 */
};

/* Returns a text in normal form C and its length in *ret_n: the text s itself if no character of it
 * can change, otherwise a text in out, which is cleared first.  s: n bytes of well-formed UTF-8.
 * After a failure out->err is not KVF_OK. */
const char *nfc(struct nfc *x, const char *s, size_t n, struct buf *out, size_t *ret_n);
/* Returns the bytes of the first grapheme cluster of a text of n > 0 bytes; 1 if the text does not
 * begin with a character. No character is composed with, or reordered past, one of another cluster.
 * So the clusters of a text can be converted one by one. */
size_t nfc_cluster(const char *s, size_t n);
void nfc_finish(struct nfc *x); /* accepts a zeroed struct */
