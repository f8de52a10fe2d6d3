/* adapter.h - a model with the low-rank changes of an adapter added to its matrices (LoRA).
 *
 * Read is what PEFT writes, and `kvfate tune`: a safetensors file with
 * "...layers.N.MODULE.lora_A.weight" [rank, inputs] and "...lora_B.weight" [outputs, rank], rows of
 * queries and keys in the order of Hugging Face's models; W becomes W + (alpha / rank) B A (with
 * use_rslora: alpha / sqrt(rank)).  alpha is "lora_alpha" in the file's own metadata, or in
 * adapter_config.json beside it. */
#ifndef KVF_ENGINE_ADAPTER_H
#define KVF_ENGINE_ADAPTER_H

#include "engine/model/gguf.h"

/* path: the file, or a folder with adapter_model.safetensors.  wide: changed matrices are F32, else
 * F16.  Takes `base` when it succeeds: *ret_gguf owns it, has its metadata and its other tensors,
 * and a hash of both.  KVF_OK; with a sentence KVF_E_IO, KVF_E_FORMAT (no adapter, one of another
 * model, or of more than such changes), KVF_E_LIMIT, KVF_E_NOMEM. */
int adapter_apply(struct gguf *base, const char *path, bool wide, struct gguf **ret_gguf,
                  struct kvf_diag *d);

#endif
