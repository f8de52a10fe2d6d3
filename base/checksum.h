/* checksum.h - the checksum of files that kvfate writes and reads again.
 *
 * It detects accidental damage, not forgery. Any change within 8 aligned bytes is always detected,
 * and any other change with probability 1 - 2^-64. The Python package has the same function:
 * files.checksum.
 */
#ifndef KVF_BASE_CHECKSUM_H
#define KVF_BASE_CHECKSUM_H

#include <stddef.h>
#include <stdint.h>

enum { CHECKSUM_BLOCK = 1 << 16, CHECKSUM_DIGITS = 16 };

/* Continues the checksum `h` (0 at the start) with n bytes. It is rng_hash_bytes() of each block
 * of CHECKSUM_BLOCK bytes, seeded with the checksum of the preceding block. The bytes may be
 * divided into several calls if each call except the last has a multiple of CHECKSUM_BLOCK bytes.
 * Returns the new checksum. */
uint64_t checksum(uint64_t h, const void *p, size_t n);

/* Writes the checksum as CHECKSUM_DIGITS hexadecimal digits and a NUL. */
void checksum_text(uint64_t h, char out[CHECKSUM_DIGITS + 1]);

#endif
