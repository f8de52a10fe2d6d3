#include <stdlib.h>
#include <string.h>

#include <kvf/err.h>

#include "base/mem.h"
#include "engine/gate/zip_entries.h"

enum {
    LOCAL = 30,
    RECORD = 46,
    END = 22,
    LOCATOR = 20,
    END64 = 56,       /* bytes of each, without texts */
    COMMENT = 0xffff, /* the longest */
    ZIP64 = 1         /* kind of an extra field */
};
static const uint32_t IN_ZIP64 = UINT32_MAX; /* the number is in the extra field or end record */

/* The directory, as the end record states it. */
struct directory {
    const unsigned char *map;
    size_t at, end; /* end: where the end records begin */
    uint64_t n;
    const char *why;
};

static uint64_t get(const unsigned char *p, int n)
{
    uint64_t v = 0;
    while (n-- > 0)
        v = v << 8 | p[n];
    return v;
}

static bool is(const unsigned char *p, const char *mark)
{
    return memcmp(p, mark, 4) == 0;
}

static int damaged(struct directory *d, const char *why)
{
    d->why = why;
    return KVF_E_FORMAT;
}

/* --- the end of the archive (4.3.14 to 4.3.16) ------------------------------- */

/* Place of the end record, whose comment ends with the file; 0: none. */
static size_t find_end(const unsigned char *map, size_t size)
{
    for (size_t n = 0; n <= COMMENT && n + END <= size; n++) {
        const unsigned char *p = map + size - END - n;
        if (is(p, "PK\5\6") && get(p + 20, 2) == n)
            return size - END - n;
    }
    return 0;
}

/* A number of the end record against the same of Zip64. */
static bool agrees(const unsigned char *p, int n, uint64_t v)
{
    uint64_t there = get(p, n);
    return there == v || there == (n == 2 ? UINT16_MAX : UINT32_MAX);
}

/* The Zip64 record, whose locator lies right before the end record. */
static int read_end64(struct directory *d, const unsigned char *end, uint64_t *bytes, uint64_t *at)
{
    const unsigned char *locator = end - LOCATOR, *p;
    uint64_t before = (uint64_t)(locator - d->map), place = get(locator + 8, 8);
    if (before < END64 || place > before - END64 || !is(d->map + place, "PK\6\6")
        || get(d->map + place + 4, 8) != before - place - 12)
        return damaged(d, "its Zip64 end record is not where it is said to be");
    p = d->map + place;
    d->n = get(p + 32, 8);
    *bytes = get(p + 40, 8);
    *at = get(p + 48, 8);
    d->end = (size_t)place;
    if (get(locator + 4, 4) || get(p + 16, 8) || get(p + 24, 8) != d->n)
        return damaged(d, "it has several parts");
    if (!agrees(end + 8, 2, d->n) || !agrees(end + 10, 2, d->n) || !agrees(end + 12, 4, *bytes)
        || !agrees(end + 16, 4, *at))
        return damaged(d, "its two end records differ");
    return KVF_OK;
}

static int read_end(struct directory *d, size_t size)
{
    size_t place = find_end(d->map, size);
    if (!place)
        return damaged(d, "no directory at its end");
    const unsigned char *p = d->map + place;
    uint64_t bytes = get(p + 12, 4), at = get(p + 16, 4);
    int err = KVF_OK;
    d->n = get(p + 10, 2);
    d->end = place;
    if (place >= LOCATOR && is(p - LOCATOR, "PK\6\7"))
        err = read_end64(d, p, &bytes, &at);
    else if (get(p + 4, 4) || get(p + 8, 2) != d->n)
        err = damaged(d, "it has several parts");
    if (err)
        return err;
    if (bytes > d->end || at != d->end - bytes)
        return damaged(d, "its directory does not end where the end record begins");
    if (d->n > bytes / RECORD)
        return damaged(d, "its directory has no room for its entries");
    d->at = (size_t)at;
    return KVF_OK;
}

/* --- entries (4.3.7, 4.3.12, 4.5.3) ------------------------------------------ */

/* Numbers that a record leaves to its Zip64 field, in the order in which they lie there. */
static bool read_zip64(const unsigned char *extra, size_t n, uint64_t *v[3])
{
    while (n >= 4) {
        size_t kind = (size_t)get(extra, 2), len = (size_t)get(extra + 2, 2);
        extra += 4;
        n -= 4;
        if (len > n)
            return false;
        for (int i = 0; kind == ZIP64 && i < 3; i++) {
            if (*v[i] != IN_ZIP64)
                continue;
            if (len < 8)
                return false;
            *v[i] = get(extra, 8);
            extra += 8;
            len -= 8;
            n -= 8;
        }
        extra += len;
        n -= len;
        if (kind == ZIP64)
            break;
    }
    return true;
}

static bool stated(const unsigned char *p, uint64_t v)
{
    return get(p, 4) == v || get(p, 4) == IN_ZIP64;
}

/* The header before the data repeats the record; bit 3 of its flags: checksum and sizes were
 * not known yet and follow the data. */
static int read_local(struct directory *d, uint64_t at, struct zip_entry *e)
{
    if (at > d->at || d->at - at < LOCAL || !is(d->map + at, "PK\3\4"))
        return damaged(d, "an entry is not where the directory says");
    const unsigned char *p = d->map + at;
    size_t room = d->at - (size_t)at - LOCAL;
    size_t name_n = (size_t)get(p + 26, 2), extra_n = (size_t)get(p + 28, 2);
    if (name_n + extra_n > room || e->n > room - name_n - extra_n)
        return damaged(d, "an entry runs into the directory");
    bool later = get(p + 6, 2) & 8;
    if (name_n != e->name_n || memcmp(p + LOCAL, e->name, name_n) != 0 || get(p + 8, 2) != e->method
        || ((get(p + 6, 2) & 1) != 0) != e->encrypted
        || (!later
            && (get(p + 14, 4) != e->crc || !stated(p + 18, e->n) || !stated(p + 22, e->unpacked))))
        return damaged(d, "the header of an entry differs from the directory");
    e->data = p + LOCAL + name_n + extra_n;
    return KVF_OK;
}

/* One record; *at is moved behind it. */
static int read_record(struct directory *d, size_t *at, struct zip_entry *e)
{
    const unsigned char *p = d->map + *at;
    if (d->end - *at < RECORD || !is(p, "PK\1\2"))
        return damaged(d, "its directory is broken");
    size_t room = d->end - *at - RECORD, extra_n = (size_t)get(p + 30, 2);
    size_t rest = extra_n + (size_t)get(p + 32, 2);
    e->name = (const char *)p + RECORD;
    e->name_n = (size_t)get(p + 28, 2);
    if (e->name_n + rest > room)
        return damaged(d, "its directory is broken");
    uint64_t n = get(p + 20, 4), local = get(p + 42, 4);
    e->unpacked = get(p + 24, 4);
    if (!read_zip64(p + RECORD + e->name_n, extra_n, (uint64_t *[]){&e->unpacked, &n, &local}))
        return damaged(d, "its directory is broken");
    if (memchr(e->name, 0, e->name_n))
        return damaged(d, "the name of an entry has a NUL");
    if (n > d->at)
        return damaged(d, "an entry runs into the directory");
    e->n = (size_t)n;
    e->crc = (uint32_t)get(p + 16, 4);
    e->method = (unsigned)get(p + 10, 2);
    e->encrypted = get(p + 8, 2) & 1;
    if (e->method == 0 && !e->encrypted && e->n != e->unpacked)
        return damaged(d, "an entry that is stored has two sizes");
    *at += RECORD + e->name_n + rest;
    return read_local(d, local, e);
}

static int by_name(const void *a, const void *b)
{
    const struct zip_entry *x = a, *y = b;
    size_t n = x->name_n < y->name_n ? x->name_n : y->name_n;
    int order = memcmp(x->name, y->name, n);
    return order ? order : (x->name_n > y->name_n) - (x->name_n < y->name_n);
}

static int read_directory(struct directory *d, struct zip_entry *e)
{
    size_t at = d->at, n = (size_t)d->n;
    for (size_t i = 0; i < n; i++) {
        int err = read_record(d, &at, &e[i]);
        if (err)
            return err;
    }
    if (at != d->end)
        return damaged(d, "its directory is longer than its entries");
    qsort(e, n, sizeof *e, by_name);
    for (size_t i = 1; i < n; i++)
        if (by_name(&e[i - 1], &e[i]) == 0)
            return damaged(d, "two entries have one name");
    return KVF_OK;
}

int zip_entries_read(const unsigned char *map, size_t size, struct zip_entry **ret, size_t *ret_n,
                     const char **ret_why)
{
    struct directory d = {.map = map};
    struct zip_entry *e = NULL;
    int err = read_end(&d, size);
    if (err)
        goto fail;
    e = MEM_NEW(struct zip_entry, (size_t)d.n);
    err = e ? read_directory(&d, e) : KVF_E_NOMEM;
    if (err)
        goto fail;
    *ret = e;
    *ret_n = (size_t)d.n;
    return KVF_OK;

fail:
    mem_free(e);
    *ret_why = d.why;
    return err;
}

const struct zip_entry *zip_entries_find(const struct zip_entry *e, size_t n, const char *name)
{
    struct zip_entry key = {.name = name, .name_n = strlen(name)};
    return n ? bsearch(&key, e, n, sizeof *e, by_name) : NULL;
}
