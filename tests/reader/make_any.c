/* make_any.c - writes traces of random bytes with kvfate's own columns (tests/fuzz/any_trace.h):
 * valid checksums and arbitrary values, shapes, headers and notes.
 *
 * usage: make_any COUNT NAME. It writes NAME-0.kvf, NAME-1.kvf, ... */
#include <stdio.h>
#include <stdlib.h>

#include "../fuzz/any_trace.h"

enum { MOST = 512 };

static uint64_t state = 88172645463325252u;

static uint8_t random_byte(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (uint8_t)(state >> 32);
}

/* Makes the source of trace k: more of its bytes are zero, which leaves a valid part, for small k.
 */
static size_t fill(uint8_t *bytes, int k)
{
    size_t n = (size_t)k * 7 % MOST;
    for (size_t i = 0; i < n; i++)
        bytes[i] = random_byte() % 5 < k % 5 ? random_byte() : 0;
    return n;
}

int main(int argc, char **argv)
{
    static uint8_t bytes[MOST];
    int count = argc == 3 ? atoi(argv[1]) : -1;
    if (count < 0) {
        fprintf(stderr, "usage: make_any COUNT NAME\n");
        return 2;
    }
    for (int k = 0; k < count; k++) {
        struct source s = {bytes, fill(bytes, k)};
        char path[4096];
        size_t n;
        const unsigned char *trace = any_trace(&s, &n);
        snprintf(path, sizeof path, "%s-%d.kvf", argv[2], k);
        FILE *f = fopen(path, "wb");
        if (!f || fwrite(trace, 1, n, f) != n || fclose(f) != 0)
            return 1;
    }
    return 0;
}
