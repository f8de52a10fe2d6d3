/* methods_json.h - the rows that --method knows, for the commands that list them. */
#ifndef KVF_CLI_METHODS_JSON_H
#define KVF_CLI_METHODS_JSON_H

#include "base/buf.h"

/* Appends an array with an object for each row, as docs/man/kvfate-methods.1 says; budget 0: that
 * which rows have by default.  KVF_OK or an error of the buffer. */
int methods_json(struct buf *b, int budget);

#endif
