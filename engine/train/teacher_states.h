/* teacher_states.h - the frozen model's last hidden states of packs, kept on disk.
 *
 * They depend on the model and the tokens alone, so trainings of several gates on one text, and
 * later epochs, need not run the teacher again: a quarter of a step.  A file for each pack:
 * f32 [T, d_model] after the final norm, then XXH3-128 of these bytes and the pack's key.  A file
 * that is short, damaged or of another pack is none, and is written again. */
#ifndef KVF_ENGINE_TRAIN_TEACHER_STATES_H
#define KVF_ENGINE_TRAIN_TEACHER_STATES_H

#include <stdbool.h>

#include "engine/train/packs.h"

struct teacher_states {
    const char *folder; /* borrowed, existing; NULL: nothing is kept */
    const char *model;  /* what else the states depend on: model and kernels */
};

/* Whether out [pack->n, d] was filled. */
bool teacher_states_read(const struct teacher_states *s, const struct pack *pack, int d,
                         float *out);
/* Keeps x [pack->n, d]; a full disk only costs time later. */
void teacher_states_write(const struct teacher_states *s, const struct pack *pack, int d,
                          const float *x);

#endif
