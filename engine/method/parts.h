/* parts.h - admission, allocation, trigger and read parts by name. */
#ifndef KVF_ENGINE_PARTS_H
#define KVF_ENGINE_PARTS_H

#include "engine/method/method.h"

extern const struct admission admission_all, admission_write, admission_streaming, admission_duo,
    admission_plan; /* admission.c */
extern const struct allocation allocation_uniform, allocation_pyramid, allocation_adaptive,
    allocation_adaptive_pyramid, allocation_cake, allocation_global;          /* allocation.c */
extern const struct trigger trigger_none, trigger_overflow, trigger_fraction; /* parts.c */
extern const struct read read_all, read_quest, read_seer, read_seer_oracle;   /* read.c */

#endif
