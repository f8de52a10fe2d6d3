/* pack_room.h - one block of memory on huge pages that the packed matrices of a model share. A
 * matrix-vector product reads all of it. It is separate from packed.h because C++ code includes
 * packed.h and cannot include <stdatomic.h>. */
#pragma once

#include <stdatomic.h>

#include "engine/kernels/packed.h"

/* The shared memory and the number of its bytes in use. */
struct pack_room {
    uint8_t *data;
    size_t bytes;
    atomic_size_t used;
};
/* Allocates memory for n matrices of `bytes` in total. If memory is short, the room is empty. */
void pack_room_open(struct pack_room *room, uint64_t bytes, int n);
/* Frees the memory. No matrix in it can be used afterwards. */
void pack_room_close(struct pack_room *room);
/* Packs as packed_build does, in memory of the room if enough is left, otherwise in memory of its
 * own. Several threads can call it for one room at the same time. */
int packed_build_in(struct pack_room *room, const struct pack_source *src, int n_src, int K,
                    enum pack_how how, struct packed *ret);
