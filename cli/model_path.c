/* model_path.c - resolves the names of listed models to files in the cache folder (model_list.h).
 */
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "cli/folders.h"
#include "cli/model_list.h"

/* Returns the listed model of a name, in any case of letters, or NULL. */
static const struct listed_model *listed(const char *name)
{
    for (const struct listed_model *m = model_list; m->name; m++)
        if (strcasecmp(m->name, name) == 0)
            return m;
    return NULL;
}

int model_path(const char *given, struct buf *ret_path, struct kvf_diag *d)
{
    struct stat s;
    const struct listed_model *m = given ? listed(given) : model_list;
    if (given && (!m || stat(given, &s) == 0)) {
        buf_str(ret_path, given);
        return ret_path->err;
    }
    int err = folder_cache(m->file, ret_path);
    if (err == KVF_E_NOTFOUND)
        return kvf_fail(
            d, KVF_E_IO,
            "neither KVFATE_CACHE nor HOME names a folder for models; give -m MODEL.gguf");
    if (!err && stat(ret_path->data, &s) != 0)
        return kvf_fail(
            d, KVF_E_IO,
            "the %smodel %s is not at %s; fetch it with 'kvfate models get %s', or give "
            "-m MODEL.gguf",
            m == model_list ? "default " : "", m->name, ret_path->data, m->name);
    return err;
}
