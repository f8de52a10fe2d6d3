/* pack_room.h - memory that the repacked matrices of a model share, in one piece on huge pages: a
 * product of one row reads all of it.  Apart from packed.h, which C++ reads and atomics are not in.
 */
#ifndef KVF_ENGINE_PACK_ROOM_H
#define KVF_ENGINE_PACK_ROOM_H

#include <stdatomic.h>

#include "engine/kernels/packed.h"

struct pack_room {
    uint8_t *data;
    size_t bytes;
    atomic_size_t used;
};
/* For matrices of `bytes` together, n of them.  Without memory the room is empty. */
void pack_room_open(struct pack_room *room, uint64_t bytes, int n);
void pack_room_close(struct pack_room *room);
/* As packed_build, in memory of the room while there is some, and else in its own.  Threads may
 * call it for one room at once. */
int packed_build_in(struct pack_room *room, const struct pack_source *src, int n_src, int K,
                    enum pack_how how, struct packed *ret);

#endif
