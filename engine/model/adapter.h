/* adapter.h - adds the low-rank changes of an adapter (LoRA) to the matrices of a model.
 *
 * It reads the format of PEFT, which `kvfate tune` writes, too: a safetensors file with
 * "...layers.N.MODULE.lora_A.weight" [rank, inputs] and "...lora_B.weight" [outputs, rank]. Rows
 * of queries and keys have the order of Hugging Face models. W becomes W + (alpha / rank) B A, or
 * with use_rslora W + (alpha / sqrt(rank)) B A. alpha is "lora_alpha" in the metadata of the file,
 * or in adapter_config.json in the same folder.
 */
#pragma once

#include "engine/model/gguf.h"

/* Applies an adapter. path: the file, or a folder with adapter_model.safetensors. wide: changed
 * matrices are F32, otherwise F16. On success *ret_gguf owns `base`, has its metadata and its
 * other tensors, and a hash of both files. Returns KVF_OK, or with a sentence KVF_E_IO,
 * KVF_E_FORMAT (not an adapter, an adapter of another model, or changes other than LoRA),
 * KVF_E_LIMIT or KVF_E_NOMEM. */
int adapter_apply(struct gguf *base, const char *path, bool wide, struct gguf **ret_gguf,
                  struct kvf_diag *d);
