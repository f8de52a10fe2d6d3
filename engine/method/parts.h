/* parts.h - admission, allocation, trigger and read parts by name (parts.c). */
#ifndef KVF_ENGINE_PARTS_H
#define KVF_ENGINE_PARTS_H

#include "engine/method/method.h"

extern const struct admission admission_all;
extern const struct allocation allocation_uniform, allocation_pyramid, allocation_adaptive,
    allocation_adaptive_pyramid, allocation_cake; /* allocation.c */
extern const struct trigger trigger_none, trigger_overflow;
extern const struct read read_all;

#endif
