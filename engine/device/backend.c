/* backend.c - the table of functions with which a session runs on a CUDA device. */
#include "engine/device/decode.h"
#include "engine/device/device.h"

const struct backend backend_cuda = {
    .name = "cuda",
    .precision = "weights as stored, f32 activations",
    .rows = 1024,
    .open = device_weights_open,
    .close = device_weights_close,
    .begin = device_session_begin,
    .end = device_session_end,
    .embed = device_embed,
    .steps = steps_device,
    .prefill = device_prefill,
    .final_norm = device_final_norm,
    .lm_head = device_lm_head,
    .likelihood = device_likelihood,
    .decode_step = device_decode_step,
    .can_batch = device_can_batch,
    .decode_batch = device_decode_batch,
    .logits = device_fetch_logits,
    .sync_evidence = device_sync_evidence,
    .check = device_error,
};
