/* crc32c.h - CRC-32C (Castagnoli, RFC 3720 B.4): crc32c(0, "123456789", 9) is
 * e3069283.  Continues from crc. */
#pragma once

#include <stddef.h>
#include <stdint.h>

uint32_t crc32c(uint32_t crc, const void *data, size_t n);
uint32_t crc32c_portable(uint32_t crc, const void *data, size_t n);
