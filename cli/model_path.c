/* model_path.c - resolves the value of -m to a file or a folder that the engine opens
 * (model_list.h). */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
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

/* ---- files of a folder */

static bool is_folder(const char *path)
{
    struct stat s;
    return stat(path, &s) == 0 && S_ISDIR(s.st_mode);
}

static bool exists(const char *folder, const char *name)
{
    struct buf path = {0};
    struct stat s;
    buf_printf(&path, "%s/%s", folder, name);
    bool found = !path.err && stat(path.data, &s) == 0;
    buf_finish(&path);
    return found;
}

static bool ends(const char *name, const char *end)
{
    size_t n = strlen(name), k = strlen(end);
    return n > k && strcasecmp(name + n - k, end) == 0;
}

/* Rejects a Git LFS pointer: a text of a few lines in the place of a large file. */
static int check_pointer(const char *path, struct kvf_diag *d)
{
    static const char magic[] = "version https://git-lfs.github.com/spec/";
    char start[sizeof magic - 1];
    struct stat s;
    bool small = stat(path, &s) == 0 && S_ISREG(s.st_mode) && s.st_size < 1024;
    FILE *f = small ? fopen(path, "rb") : NULL;
    bool pointer = f && fread(start, 1, sizeof start, f) == sizeof start
                   && memcmp(start, magic, sizeof start) == 0;
    if (f)
        fclose(f);
    return pointer ? kvf_fail(d, KVF_E_IO,
                              "%s: this is a Git LFS pointer, not the model file; run 'git lfs "
                              "pull' in its folder to fetch the file",
                              path)
                   : KVF_OK;
}

/* The GGUF files of a folder. */
struct found {
    int n;          /* files, counting a split model once */
    struct buf one; /* the name of the first one by name */
};

/* Adds a name of a folder to the GGUF files. */
static void count_gguf(struct found *x, const char *name)
{
    const char *part = strstr(name, "-of-");
    if (!ends(name, ".gguf") || (part && part - name > 6 && !strstr(name, "-00001-of-")))
        return;
    x->n++;
    if (x->one.len && strcmp(x->one.data, name) < 0)
        return;
    buf_clear(&x->one);
    buf_str(&x->one, name);
}

/* Looks for GGUF files and Git LFS pointers in a folder. */
static int look(const char *folder, struct found *x, struct kvf_diag *d)
{
    DIR *dir = opendir(folder);
    int err = KVF_OK;
    for (struct dirent *e = dir ? readdir(dir) : NULL; !err && e; e = readdir(dir)) {
        struct buf path = {0};
        buf_printf(&path, "%s/%s", folder, e->d_name);
        err = path.err;
        if (!err
            && (ends(e->d_name, ".gguf") || ends(e->d_name, ".safetensors")
                || ends(e->d_name, ".json")))
            err = check_pointer(path.data, d);
        count_gguf(x, e->d_name);
        buf_finish(&path);
    }
    if (dir)
        closedir(dir);
    return err ? err : x->one.err;
}

/* Replaces the path of a folder without config.json by the path of its only GGUF file. */
static int only_gguf(struct buf *path, struct kvf_diag *d)
{
    struct found x = {0};
    int err = look(path->data, &x, d);
    if (!err && !exists(path->data, "config.json") && x.n > 1)
        err = kvf_fail(d, KVF_E_IO, "%s: the folder has %d GGUF files; name one: -m %s/%s",
                       path->data, x.n, path->data, x.one.data);
    if (!err && !exists(path->data, "config.json") && x.n == 1) {
        buf_printf(path, "/%s", x.one.data);
        err = path->err;
    }
    buf_finish(&x.one);
    return err;
}

/* ---- the cache of the Hugging Face hub */

/* Reads the commit of refs/main, or takes the last folder of snapshots by name. */
static void snapshot_of(const char *folder, struct buf *ret)
{
    struct buf at = {0};
    char commit[256] = "";
    buf_printf(&at, "%s/refs/main", folder);
    FILE *f = at.err ? NULL : fopen(at.data, "r");
    if (f && !fgets(commit, sizeof commit, f))
        commit[0] = 0;
    if (f)
        fclose(f);
    commit[strcspn(commit, "\r\n")] = 0;
    buf_clear(&at);
    buf_printf(&at, "%s/snapshots", folder);
    DIR *dir = commit[0] || at.err ? NULL : opendir(at.data);
    for (struct dirent *e = dir ? readdir(dir) : NULL; e; e = readdir(dir))
        if (e->d_name[0] != '.' && strcmp(e->d_name, commit) > 0)
            snprintf(commit, sizeof commit, "%s", e->d_name);
    if (dir)
        closedir(dir);
    buf_clear(ret);
    buf_printf(ret, "%s/snapshots/%s", folder, commit);
    buf_finish(&at);
}

/* Replaces the path of a folder of the hub cache, models--ORG--NAME, by that of its snapshot. */
static int enter_snapshot(struct buf *path, struct kvf_diag *d)
{
    struct buf at = {0};
    while (path->len > 1 && path->data[path->len - 1] == '/')
        path->data[--path->len] = 0;
    const char *name = strrchr(path->data, '/');
    if (strncmp(name ? name + 1 : path->data, "models--", 8) != 0)
        return KVF_OK;
    snapshot_of(path->data, &at);
    int err = at.err;
    if (!err && !is_folder(at.data))
        err = kvf_fail(d, KVF_E_IO,
                       "%s: this folder of the hub cache has no snapshot of the model; fetch it "
                       "with 'hf download'",
                       path->data);
    if (!err) {
        buf_clear(path);
        buf_str(path, at.data);
        err = path->err;
    }
    buf_finish(&at);
    return err;
}

/* Returns true if the text has the form ORG/NAME of a model on the hub. */
static bool is_hub_id(const char *text)
{
    const char *slash = strchr(text, '/');
    return slash && slash > text && slash[1] && !strchr(slash + 1, '/') && text[0] != '.'
           && text[0] != '~' && !ends(text, ".gguf") && !ends(text, ".safetensors")
           && text[strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
                                "._-/")]
                  == 0;
}

/* Finds a model of the hub in the hub cache. */
static int hub_model(const char *id, struct buf *path, struct kvf_diag *d)
{
    int org = (int)strcspn(id, "/");
    folder_hub(path);
    if (!path->err && !is_folder(path->data))
        return kvf_fail(d, KVF_E_IO,
                        "%s: there is no such file, and no hub cache %s; fetch a model of the hub "
                        "with 'hf download %s', or a listed model with 'kvfate models get NAME'",
                        id, path->data, id);
    buf_printf(path, "/models--%.*s--%s", org, id, id + org + 1);
    if (path->err || is_folder(path->data))
        return path->err ? path->err : enter_snapshot(path, d);
    return kvf_fail(d, KVF_E_IO,
                    "%s: there is no such file, and the hub cache has no %s; fetch it with 'hf "
                    "download %s'",
                    id, path->data, id);
}

/* ---- -m */

static int unknown_name(const char *given, struct kvf_diag *d)
{
    const char *near = near_listed(given);
    struct buf list = {0};
    if (near)
        buf_printf(&list, " (did you mean '%s'?)", near);
    for (const struct listed_model *m = model_list; !near && m->name; m++)
        buf_printf(&list, "%s%s", m == model_list ? "; it lists " : ", ", m->name);
    int err = kvf_fail(d, KVF_E_IO,
                       "%s: cannot open the model: there is no such file, and 'kvfate models' "
                       "lists no model of this name%s",
                       given, list.err ? "" : list.data);
    buf_finish(&list);
    return err;
}

/* Resolves a path: a file, one of the files of a model folder, or a folder. */
static int resolve(const char *given, struct buf *path, struct kvf_diag *d)
{
    int err = KVF_OK;
    const char *slash = strrchr(given, '/');
    buf_str(path, given);
    if (path->err)
        return path->err;
    if (!is_folder(given))
        err = check_pointer(given, d);
    if (!err && (ends(given, ".safetensors") || ends(given, ".safetensors.index.json"))) {
        buf_clear(path);
        buf_add(path, slash ? given : ".", slash ? (size_t)(slash - given) : 1);
        if (path->len == 0)
            buf_str(path, "/");
        if (!exists(path->data, "config.json"))
            err = kvf_fail(d, KVF_E_IO,
                           "%s: weights without a config.json in the same folder; fetch all files "
                           "of the model, or give a GGUF file",
                           given);
    }
    if (!err && is_folder(path->data))
        err = enter_snapshot(path, d);
    if (!err && is_folder(path->data))
        err = only_gguf(path, d);
    return err ? err : path->err;
}

int model_path(const char *given, struct buf *ret_path, struct kvf_diag *d)
{
    struct stat s;
    const struct listed_model *m = given ? listed(given) : model_list;
    bool there = given && (stat(given, &s) == 0 || errno != ENOENT);
    if (given && !m && !there && !strchr(given, '/'))
        return unknown_name(given, d);
    if (given && !m && !there && is_hub_id(given)) {
        int err = hub_model(given, ret_path, d);
        return err ? err : only_gguf(ret_path, d);
    }
    if (given && (!m || there))
        return resolve(given, ret_path, d);
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
