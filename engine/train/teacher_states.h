/* teacher_states.h - stores the teacher's final hidden states of packs on disk.
 *
 * The states depend only on the model and the tokens. So trainings of several gates on one text,
 * and later epochs, do not run the teacher again, which is a quarter of a step. Each pack has a
 * file: f32 [T, d_model] after the final norm, then XXH3-128 of these bytes and the pack's key. A
 * file that is short, damaged or of another pack is ignored and rewritten.
 *
 * The folder has a size limit, at which writing stops. Files are never removed: an epoch uses every
 * pack once, so all files are equally useful, and another training may be about to read one. */
#pragma once

#include <stdbool.h>

#include "engine/train/packs.h"

/* A folder of stored states. */
struct teacher_states {
    const char *folder; /* borrowed; must exist */
    const char *model;  /* borrowed; identifies the model and the kernels */
    int64_t limit;      /* maximum bytes of all files in the folder */

    bool stopped;        /* writing has stopped */
    struct kvf_diag why; /* reason, if stopped */
    int64_t trust;       /* bytes that may be written before the folder is measured again */
};

/* Reads the states of a pack into out [pack->n, d]. Returns false if they are not stored, or if s
 * is NULL. */
bool teacher_states_read(const struct teacher_states *s, const struct pack *pack, int d,
                         float *out);
/* Stores x [pack->n, d], unless s is NULL or stopped. After a failure or at the limit, s stops;
 * later trainings are only slower. Up to 8 processes can fill one folder; each can exceed the limit
 * by one file. */
void teacher_states_write(struct teacher_states *s, const struct pack *pack, int d, const float *x);
