/* hold.c - allocates all but a given amount of a device's memory, so that other programs find
 * little.
 *
 * Each line of standard input is the number of bytes to leave free. The answer is a line with the
 * bytes that are then free. The end of the input releases all memory. */
#include <stdio.h>

#include "engine/cuda/gpu.h"

enum { MOST_PIECES = 4096 };
static const size_t largest = (size_t)1 << 30, smallest = (size_t)2 << 20; /* bytes of a block */

struct held {
    void *piece[MOST_PIECES]; /* large blocks first */
    int n;
};

static size_t free_bytes(void)
{
    struct gpu_facts facts = {.free = 0};
    struct kvf_diag d = {""};
    if (gpu_look(0, &facts, &d))
        fprintf(stderr, "%s\n", d.text);
    return facts.free;
}

static void hold(struct gpu *g, struct held *h, size_t leave)
{
    while (h->n > 0 && free_bytes() < leave)
        gpu_free(g, h->piece[--h->n]);
    for (size_t size = largest; size >= smallest;) {
        void *p = NULL;
        if (h->n < MOST_PIECES && free_bytes() >= leave && free_bytes() - leave >= size)
            p = gpu_alloc(g, size, 1);
        if (p)
            h->piece[h->n++] = p;
        else
            size /= 2;
    }
}

int main(void)
{
    static struct held h;
    struct gpu *g = NULL;
    struct kvf_diag d = {""};
    size_t leave;
    if (gpu_open(0, &g, &d)) {
        fprintf(stderr, "%s\n", d.text);
        return 1;
    }
    while (scanf("%zu", &leave) == 1) {
        hold(g, &h, leave);
        printf("%zu\n", free_bytes());
        fflush(stdout);
    }
    while (h.n > 0)
        gpu_free(g, h.piece[--h.n]);
    gpu_close(g);
    return 0;
}
