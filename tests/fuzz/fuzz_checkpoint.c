/* fuzz_checkpoint.c - a checkpoint must be read completely, or rejected with a message and without
 * output. */
#include <string.h>

#include "base/mem.h"
#include "engine/train/checkpoint.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    float w[6], v[1];
    struct checkpoint_tensor tensor[] = {{"w", 2, {2, 3}, w}, {"v", 0, {0}, v}};
    struct checkpoint c = {tensor, 2, "lr=1\n", -1, NULL};
    struct kvf_diag d = {""};
    char path[64];
    int found = 0, fd = memory_file(data, n, path);
    int err = checkpoint_read(path, &c, &found, &d);
    MUST(found && (err == KVF_OK) == (c.log != NULL) && (err == KVF_OK) == (c.step >= 0));
    MUST(!err || err == KVF_E_NOMEM || d.text[0]);
    mem_free(c.log);
    close(fd);
    return 0;
}
