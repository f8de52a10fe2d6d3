/* folders.c - finds the cache folder and the folders of shipped gates and fonts. */
#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"
#include "base/os.h"
#include "cli/folders.h"
#include "config.h"
#include "engine/gate/gate.h"

int folder_cache(const char *name, struct buf *ret_path)
{
    const char *dir = getenv("KVFATE_CACHE"), *home = getenv("HOME");
    if (dir && *dir)
        buf_str(ret_path, dir);
    else if (home && *home)
        buf_printf(ret_path, "%s/.cache/kvfate", home);
    else
        return KVF_E_NOTFOUND;
    if (name)
        buf_printf(ret_path, "/%s", name);
    return ret_path->err;
}

int folder_cache_make(const char *name, struct buf *ret_path)
{
    int err = folder_cache(NULL, ret_path);
    if (err)
        return err;
    /* If it cannot be created, the function that writes into it reports the error. */
    mkdir(ret_path->data, 0777);
    buf_printf(ret_path, "/%s", name);
    if (!ret_path->err)
        mkdir(ret_path->data, 0777);
    return ret_path->err;
}

static bool is_folder(const char *path)
{
    struct stat s;
    return stat(path, &s) == 0 && S_ISDIR(s.st_mode);
}

int folder_beside(int up, const char *tail, struct buf *ret_path)
{
    char self[4096];
    struct stat s;
    ssize_t n = os_program_path(self, sizeof self);
    if (n <= 0 || (size_t)n == sizeof self)
        return KVF_E_NOTFOUND;
    self[n] = 0;
    for (; up >= 0; up--) {
        char *slash = strrchr(self, '/');
        if (!slash)
            return KVF_E_NOTFOUND;
        *slash = 0;
    }
    buf_str(ret_path, self);
    buf_str(ret_path, tail);
    if (ret_path->err)
        return ret_path->err;
    return stat(ret_path->data, &s) == 0 ? KVF_OK : KVF_E_NOTFOUND;
}

/* Returns the folder share/kvfate/gates of an installation, relative to the folder of the program,
 * so that a moved installation finds it. Returns NULL if there is none. */
static const char *gates_beside_program(void)
{
    static char path[4096];
    struct buf found = {0};
    int err = folder_beside(1, "/share/kvfate/gates", &found);
    if (!err && found.len < sizeof path)
        memcpy(path, found.data, found.len + 1);
    bool fits = !err && found.len < sizeof path && is_folder(path);
    buf_finish(&found);
    return fits ? path : NULL;
}

void folder_hub(struct buf *ret_path)
{
    const char *cache = getenv("HF_HUB_CACHE"), *home = getenv("HF_HOME"), *user = getenv("HOME");
    if (cache && *cache)
        buf_str(ret_path, cache);
    else if (home && *home)
        buf_printf(ret_path, "%s/hub", home);
    else
        buf_printf(ret_path, "%s/.cache/huggingface/hub", user ? user : "");
}

const char *folder_gates(void)
{
    const char *given = getenv("KVFATE_GATES");
    if (given && *given)
        return given;
    const char *beside = gates_beside_program();
    if (beside)
        return beside;
    return is_folder(KVFATE_GATES_INSTALLED) ? KVFATE_GATES_INSTALLED : KVFATE_GATES_SOURCE;
}

int folder_fonts_use(void)
{
    struct buf fonts = {0};
    int err = folder_beside(1, "/share/kvfate/fonts/fonts.conf", &fonts);
    if (!err && setenv("FONTCONFIG_FILE", fonts.data, 0) != 0)
        err = KVF_E_NOMEM;
    buf_finish(&fonts);
    return err == KVF_E_NOTFOUND ? KVF_OK : err;
}

int folder_gates_path(const char *given, struct buf *ret_path, struct kvf_diag *d)
{
    struct stat s;
    if (strchr(given, '/') || stat(given, &s) == 0) {
        buf_str(ret_path, given);
        return ret_path->err;
    }
    buf_printf(ret_path, "%s/%s" GATES_ENDING, folder_gates(), given);
    if (ret_path->err || stat(ret_path->data, &s) == 0)
        return ret_path->err;
    if (!strchr(given, '.'))
        return kvf_fail(d, KVF_E_ARG,
                        "--gates %s: there is no such file, and no gates of that "
                        "name in %s",
                        given, folder_gates());
    buf_clear(ret_path);
    buf_str(ret_path, given);
    return ret_path->err;
}

/* Returns true if a file of gates is for a method: "smollm2-135m-wgkv.safetensors" is for the
 * methods wgkv and wgkv-... */
static bool name_fits(const char *file, const char *method)
{
    size_t n = strlen(file), end = strlen(GATES_ENDING);
    if (n <= end || strcmp(file + n - end, GATES_ENDING) != 0)
        return false;
    size_t stem = n - end, at = stem;
    while (at > 0 && file[at - 1] != '-')
        at--;
    size_t len = stem - at;
    return at > 0 && len > 0 && strncmp(file + at, method, len) == 0
           && (method[len] == 0 || method[len] == '-');
}

static bool made_for(const char *path, unsigned kinds, const char *model_hash)
{
    struct kvf_diag unused;
    struct gates *g = NULL;
    struct json *meta = NULL;
    if (gates_read(path, &g, &unused) != KVF_OK)
        return false;
    const char *text = gates_meta(g);
    bool fits = (kinds >> gates_kind(g) & 1)
                && json_parse(text, strlen(text), &meta, &unused) == KVF_OK
                && strcmp(json_str(json_get(meta, "kvfate.model_hash"), ""), model_hash) == 0;
    json_free(meta);
    gates_close(g);
    return fits;
}

int folder_gates_for(const char *method, unsigned kinds, const char *model_hash,
                     struct buf *ret_path)
{
    struct buf best = {0}, path = {0};
    DIR *dir = opendir(folder_gates());
    int err = KVF_OK;
    for (struct dirent *f = dir ? readdir(dir) : NULL; f && !err; f = readdir(dir)) {
        if (!name_fits(f->d_name, method))
            continue;
        buf_clear(&path);
        buf_printf(&path, "%s/%s", folder_gates(), f->d_name);
        if (path.err || (best.len && strcmp(path.data, best.data) > 0)
            || !made_for(path.data, kinds, model_hash)) {
            err = path.err;
            continue;
        }
        buf_clear(&best);
        buf_add(&best, path.data, path.len);
        err = best.err;
    }
    if (dir)
        closedir(dir);
    if (!err && best.len)
        buf_add(ret_path, best.data, best.len);
    if (!err)
        err = best.len ? ret_path->err : KVF_E_NOTFOUND;
    buf_finish(&best);
    buf_finish(&path);
    return err;
}
