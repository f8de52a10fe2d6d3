/* unpickle.h - the tensors that a pickle of torch.save names, and nothing else.
 *
 * A machine for the opcodes that torch writes (protocols 2 to 5).  It makes dict,
 * list, tuple, str, int, float, bool and None, and knows the names
 *   collections.OrderedDict
 *   torch.{Float,Half,BFloat16}Storage
 *   torch._utils._rebuild_tensor_v2, torch._utils._rebuild_parameter,
 *   torch.nn.parameter.Parameter
 * to which it gives their meaning itself.  Every other name and every other way of
 * calling is refused with its offset: no code is ever looked up or run.  There is no
 * recursion, and memory is bounded by the length of the pickle. */
#ifndef KVF_ENGINE_UNPICKLE_H
#define KVF_ENGINE_UNPICKLE_H

#include <stddef.h>
#include <stdint.h>

#include <kvf/err.h>

#include "engine/kernels/packed.h"

enum {
    PICKLED_DIMS = 4,
    PICKLED_MOST = 65536,  /* tensors */
    PICKLE_MOST = 16 << 20 /* bytes */
};

/* A slice of the pickle's bytes. */
struct pickled_text {
    const char *at;
    size_t n;
};

struct pickled_tensor {
    struct pickled_text name, storage;               /* storage: KEY of the entry NAME/data/KEY */
    enum weight_type type;                           /* WEIGHT_F32, WEIGHT_F16 or WEIGHT_BF16 */
    int64_t storage_n;                               /* elements of the storage, as stated; >= 0 */
    int64_t offset;                                  /* first element; >= 0 */
    int n_dims;                                      /* 0 .. PICKLED_DIMS */
    int64_t dim[PICKLED_DIMS], stride[PICKLED_DIMS]; /* >= 0, unchecked otherwise */
};

/* The pickle is a dict of tensors by name, or a dict whose member "state_dict" is
 * one.  *ret, in the order of the dict, is freed with mem_free and borrows its texts
 * from p.  KVF_E_FORMAT and KVF_E_LIMIT with a sentence that begins with path, or
 * KVF_E_NOMEM. */
int unpickle(const char *path, const unsigned char *p, size_t n, struct pickled_tensor **ret,
             size_t *ret_n, struct kvf_diag *d);

#endif
