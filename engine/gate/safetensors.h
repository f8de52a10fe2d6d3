/* safetensors.h - the container safetensors.
 *
 * u64 length of the header, a JSON object, then the tensors' bytes, little-endian. */
#ifndef KVF_ENGINE_SAFETENSORS_H
#define KVF_ENGINE_SAFETENSORS_H

#include "engine/gate/tensor_file.h"

/* Fills f->tensor, n, root and meta from f->map; codes as tensor_file_open.
 * Strict: names are unique, dtypes are F32, F16 or BF16, no dimension is 0, and the
 * tensors fill the bytes after the header without gap or overlap. */
int safetensors_read(struct tensor_file *f, struct kvf_diag *d);

#endif
