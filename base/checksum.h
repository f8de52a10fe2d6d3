/* checksum.h - the checksum of files that kvfate writes and reads again.
 *
 * It finds damage, not fraud: any change within 8 aligned bytes is always noticed, any other with
 * probability 1 - 2^-64.  The Python package has the same function: files.checksum. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { CHECKSUM_BLOCK = 1 << 16, CHECKSUM_DIGITS = 16 };

/* Continues the checksum `h` (at the start 0) with n bytes: rng_hash_bytes of each block of
 * CHECKSUM_BLOCK bytes, seeded with the checksum before it.  Bytes may be passed in several calls
 * if each except the last has a multiple of CHECKSUM_BLOCK bytes. */
uint64_t checksum(uint64_t h, const void *p, size_t n);

/* Writes the checksum as CHECKSUM_DIGITS hexadecimal digits and a NUL. */
void checksum_text(uint64_t h, char out[CHECKSUM_DIGITS + 1]);
