/* zip_entries.h - what lies in a zip archive that is in memory.
 *
 * After PKWARE's APPNOTE 6.3, sections 4.3 to 4.5, for archives of one file: any method is
 * listed, nothing is unpacked.  Zip64 as there, so that no size ends at 4 GiB.  What the two
 * headers of an entry say must agree, its bytes must lie before the directory, no name comes
 * twice, and nothing but the end records follows the directory. */
#ifndef KVF_ENGINE_ZIP_ENTRIES_H
#define KVF_ENGINE_ZIP_ENTRIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct zip_entry {
    const char *name; /* borrowed, as `data` is; no NUL in it and none behind it */
    size_t name_n;
    const unsigned char *data; /* as stored; the checksum is not looked at */
    size_t n;                  /* bytes of data */
    uint64_t unpacked;         /* bytes of the contents, as stated */
    uint32_t crc;              /* of the contents, as stated */
    unsigned method;           /* 0: stored, n == unpacked */
    bool encrypted;
};

/* The n entries sorted by name; mem_free(*ret).  KVF_E_FORMAT: *ret_why is a phrase that says
 * what is wrong.  KVF_E_NOMEM. */
int zip_entries_read(const unsigned char *map, size_t size, struct zip_entry **ret, size_t *ret_n,
                     const char **ret_why);

/* NULL when no entry has the name. */
const struct zip_entry *zip_entries_find(const struct zip_entry *e, size_t n, const char *name);

#endif
