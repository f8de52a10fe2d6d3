/* backend.c - the table of functions with which a session runs on a CUDA device. */
#include "engine/device/decode.h"
#include "engine/device/device.h"

const struct backend backend_cuda = {
    .name = "cuda",
    .precision = "weights as stored, f32 activations",
    .rows = 1024,
    .open = device_weights_open,
    .close = device_weights_close,
    .begin = mirror_begin,
    .end = mirror_end,
    .embed = device_embed,
    .project = device_project_to_host,
    .attend = device_attend,
    .finish = device_finish,
    .chunk = device_chunk,
    .leave = device_final_norm,
    .head = device_lm_head,
    .likelihood = device_likelihood,
    .step = device_step,
    .joins = device_joins,
    .steps = device_steps,
    .logits = device_logits_home,
    .home = device_home,
    .check = device_error,
};
