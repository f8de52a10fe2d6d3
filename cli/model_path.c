/* model_path.c - resolves the names of listed models to files in the cache folder (model_list.h).
 */
#include <errno.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "base/opt.h"
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

/* Returns the listed model that a name is likely meant to be, or NULL. */
static const char *near_listed(const char *name)
{
    enum { MOST = 32 };
    const char *words[MOST + 1] = {NULL};
    const struct listed_model *m = model_list;
    for (int i = 0; m->name && i < MOST; i++, m++) {
        words[i] = m->name;
        if (strncasecmp(m->name, name, strlen(name)) == 0)
            return m->name;
    }
    return opt_near(words, name);
}

int model_path(const char *given, struct buf *ret_path, struct kvf_diag *d)
{
    struct stat s;
    const struct listed_model *m = given ? listed(given) : model_list;
    if (given && !m && !strchr(given, '/') && stat(given, &s) != 0 && errno == ENOENT) {
        const char *near = near_listed(given);
        return kvf_fail(d, KVF_E_IO,
                        "%s: cannot open the model: there is no such file, and 'kvfate models' "
                        "lists no model of this name%s%s%s",
                        given, near ? " (did you mean '" : "", near ? near : "", near ? "'?)" : "");
    }
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
