/* corpus_ranks.c - collects the sums that the ranks of a crew stored in files. */
#include "cli/corpus_ranks.h"

#include <stdio.h>
#include <sys/stat.h>

#include "cli/crew.h"

static int merge_file(struct corpus *c, const char *path, struct kvf_diag *d)
{
    struct corpus *b = NULL;
    struct kvf_diag other = {""};
    int err = corpus_read(path, &b, d);
    bool mine = !err && corpus_same_arguments(c, b, &other) == KVF_OK && !corpus_overlaps(c, b);
    if (mine)
        err = corpus_merge(c, b, d);
    corpus_destroy(b);
    return err;
}

int corpus_add_rank(struct corpus *c, const char *state, int rank, struct kvf_diag *d)
{
    struct buf path = {0};
    struct stat st;
    crew_file(state, rank, &path);
    int err = path.err;
    if (!err && stat(path.data, &st) == 0) {
        err = merge_file(c, path.data, d);
        if (!err)
            remove(path.data);
    }
    buf_finish(&path);
    return err;
}
