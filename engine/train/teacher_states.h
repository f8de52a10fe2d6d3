/* teacher_states.h - the frozen model's last hidden states of packs, kept on disk.
 *
 * They depend on the model and the tokens alone, so trainings of several gates on one text, and
 * later epochs, need not run the teacher again: a quarter of a step.  A file for each pack:
 * f32 [T, d_model] after the final norm, then XXH3-128 of these bytes and the pack's key.  A file
 * that is short, damaged or of another pack is none, and is written again.
 *
 * The folder has a limit.  At the limit nothing more is written.  Nothing is removed to make
 * room: an epoch uses every pack once, so that no file is better than another, and another
 * training may be about to read it. */
#ifndef KVF_ENGINE_TRAIN_TEACHER_STATES_H
#define KVF_ENGINE_TRAIN_TEACHER_STATES_H

#include <stdbool.h>

#include "engine/train/packs.h"

struct teacher_states {
    const char *folder; /* borrowed, existing */
    const char *model;  /* borrowed; what else the states depend on: model and kernels */
    int64_t limit;      /* most bytes of all files in the folder, whoever wrote them */

    bool stopped;        /* nothing more is written */
    struct kvf_diag why; /* then: a sentence */
    int64_t trust;       /* bytes to write until the folder is measured again */
};

/* Reads the states of a pack into out [pack->n, d]; whether they were there.  s NULL: false. */
bool teacher_states_read(const struct teacher_states *s, const struct pack *pack, int d,
                         float *out);
/* Keeps x [pack->n, d], unless s is NULL or stopped.  A failure, or a folder that has no room
 * for it within the limit, stops s and costs time later, nothing else.  Of up to 8 processes
 * that fill one folder each may pass the limit by one file. */
void teacher_states_write(struct teacher_states *s, const struct pack *pack, int d, const float *x);

#endif
