/* nfc.h - Unicode's normal form C, which some vocabularies ask for; private to the room. */
#ifndef KVF_ENGINE_NFC_H
#define KVF_ENGINE_NFC_H

#include "base/buf.h"

struct nfc { /* work space that grows as needed; zeroed to begin with */
    struct buf chars;
};

/* The text, n bytes of well-formed UTF-8, in that form: the text itself where it has the form
 * plainly, otherwise in out, whose earlier content goes.  What fails is in out->err. */
const char *nfc(struct nfc *x, const char *s, size_t n, struct buf *out, size_t *ret_n);
void nfc_finish(struct nfc *x); /* accepts a zeroed one */

#endif
