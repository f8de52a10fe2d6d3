/* train_files.c - names and writes the files of a training (train_files.h). */
#include "cli/train_files.h"

#include <string.h>
#include <sys/stat.h>

#include "base/replace.h"
#include "base/files.h"

enum { FILES = 3 };

static const char *path_of(const struct train_files *f, int i)
{
    const char *const path[FILES] = {f->out, f->state.data, f->log.data};
    return path[i];
}

int train_files_keep(const struct train_files *f, const char *input, struct kvf_diag *d)
{
    for (int i = 0; i < FILES; i++)
        if (file_same(input, path_of(f, i)))
            return kvf_fail(d, KVF_E_ARG, "%s %s would overwrite the input %s",
                            i == 1 ? "--state" : "-o", path_of(f, i), input);
    return KVF_OK;
}

int train_files_name(struct train_files *f, const char *out, const char *state,
                     const struct opt_list *data, struct kvf_diag *d)
{
    f->out = out;
    buf_printf(&f->state, "%s%s", state ? state : out, state ? "" : ".state");
    buf_printf(&f->log, "%s.log.jsonl", out);
    int err = f->state.err ? f->state.err : f->log.err;
    for (int i = 0; !err && i < data->n; i++)
        err = train_files_keep(f, data->item[i], d);
    if (!err && (strcmp(f->state.data, out) == 0 || file_same(f->state.data, out)))
        err = kvf_fail(d, KVF_E_ARG,
                       "--state %s: this is the name of the trained file; give another name",
                       f->state.data);
    if (!err && (strcmp(f->state.data, f->log.data) == 0 || file_same(f->state.data, f->log.data)))
        err = kvf_fail(d, KVF_E_ARG,
                       "--state %s: this is the record of the training; give another name",
                       f->state.data);
    return err;
}

int train_files_try(const struct train_files *f, struct kvf_diag *d)
{
    int err = KVF_OK;
    for (int i = 0; !err && i < FILES; i++) {
        struct replace r;
        struct stat s;
        bool there = stat(path_of(f, i), &s) == 0;
        if (there && S_ISDIR(s.st_mode))
            err = kvf_fail(d, KVF_E_IO, "%s: is a directory", path_of(f, i));
        else if (there && !S_ISREG(s.st_mode))
            err = kvf_fail(d, KVF_E_IO,
                           "%s: not a regular file; the result of the training needs one",
                           path_of(f, i));
        else
            err = replace_open(&r, path_of(f, i), d);
        if (!err)
            replace_abandon(&r);
    }
    return err;
}

int train_files_record(const struct train_files *f, const struct buf *record, struct kvf_diag *d)
{
    struct replace r;
    int err = replace_open(&r, f->log.data, d);
    if (err)
        return err;
    replace_write(&r, record->data, record->len);
    return replace_finish(&r, d);
}

void train_files_finish(struct train_files *f)
{
    buf_finish(&f->state);
    buf_finish(&f->log);
}
