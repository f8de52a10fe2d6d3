/* torch_file.h - the container that torch.save writes since 1.6.
 *
 * A zip archive of stored entries: NAME/data.pkl says which tensors there are
 * (unpickle.h), NAME/data/KEY has the elements of a storage, NAME/byteorder is
 * "little".  Nothing in it is executed; what is not a tensor of weights is refused. */
#ifndef KVF_ENGINE_TORCH_FILE_H
#define KVF_ENGINE_TORCH_FILE_H

#include "engine/gate/tensor_file.h"

/* Fills f->tensor, n and torch from f->map; codes as tensor_file_open.  Checksums
 * are verified; tensors that share a storage share their data. */
int torch_file_read(struct tensor_file *f, struct kvf_diag *d);
void torch_data_free(struct torch_data *t); /* accepts NULL */

#endif
