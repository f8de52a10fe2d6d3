/* claims_folder.c - the tables of a folder, each read once. */
#include <string.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "base/table.h"
#include "base/table_read.h"
#include "studies/claims.h"

struct kept {
    char *path;
    struct table *table;
};

struct claims_folder {
    char *path;
    table_text_fn is_text;
    struct kept *kept;
    size_t n;
};

struct claims_folder *claims_folder_create(const char *path, table_text_fn is_text)
{
    struct claims_folder *f = MEM_NEW(struct claims_folder, 1);
    if (!f)
        return NULL;
    f->is_text = is_text;
    f->path = mem_strdup(path);
    if (f->path)
        return f;
    mem_free(f);
    return NULL;
}

void claims_folder_destroy(struct claims_folder *f)
{
    if (!f)
        return;
    for (size_t i = 0; i < f->n; i++) {
        mem_free(f->kept[i].path);
        table_destroy(f->kept[i].table);
    }
    mem_free(f->kept);
    mem_free(f->path);
    mem_free(f);
}

/* Reads the file unless it was read before; KVF_E_NOTFOUND when there is none. */
static int folder_file(struct claims_folder *f, const char *path, const struct table **ret,
                       struct kvf_diag *d)
{
    struct stat st;
    for (size_t i = 0; i < f->n; i++)
        if (strcmp(f->kept[i].path, path) == 0) {
            *ret = f->kept[i].table;
            return KVF_OK;
        }
    if (stat(path, &st) != 0)
        return KVF_E_NOTFOUND;
    struct kept *grown = mem_grow(f->kept, f->n, f->n + 1, sizeof *grown);
    if (!grown)
        return KVF_E_NOMEM;
    f->kept = grown;
    struct kept k = {mem_strdup(path), NULL};
    int err = k.path ? table_read(path, f->is_text, &k.table, d) : KVF_E_NOMEM;
    if (err) {
        mem_free(k.path);
        return err;
    }
    f->kept[f->n++] = k;
    *ret = k.table;
    return KVF_OK;
}

int claims_folder_table(struct claims_folder *f, const struct claim_side *s,
                        const struct table **ret, struct kvf_diag *d)
{
    static const char *const ends[] = {"tsv", "json"};
    int err = KVF_E_NOTFOUND;
    *ret = NULL;
    for (int i = 0; i < 2 && err == KVF_E_NOTFOUND; i++) {
        struct buf path = {0};
        buf_printf(&path, "%s/%s%s%s.%s", f->path, s->table, *s->run ? "." : "", s->run, ends[i]);
        err = path.err ? path.err : folder_file(f, path.data, ret, d);
        buf_finish(&path);
    }
    return err == KVF_E_NOTFOUND ? KVF_OK : err;
}
