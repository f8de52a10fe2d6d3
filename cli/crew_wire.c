/* crew_wire.c - loads the MPI module, and sends and receives messages with it. */
#include "cli/crew_wire.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/opt.h"
#include "cli/folders.h"
#include "config.h"

static const struct wire *wire; /* NULL if this process was started without MPI */

/* Returns the number of processes that were started together, from the variables that MPI
 * launchers set; 1 if no variable is set. */
static int64_t started_together(void)
{
    static const char *const variables[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS",
                                            NULL};
    int64_t n = 1, most = 1;
    for (int i = 0; variables[i]; i++) {
        const char *size = getenv(variables[i]);
        if (size && opt_int(size, &n) && n > most)
            most = n;
    }
    /* PMIx sets a rank but no size; srun sets the size in its own variable. */
    const char *tasks = getenv("PMIX_RANK") ? getenv("SLURM_STEP_NUM_TASKS") : NULL;
    return tasks && opt_int(tasks, &n) && n > most ? n : most;
}

/* Sets *ret to the path of the module: in the folder of the program in a build, or in the library
 * folder of an installation. */
static int module_path(struct buf *ret)
{
    int err = folder_beside(0, "/" WIRE_MODULE, ret);
    if (err == KVF_E_NOTFOUND) {
        buf_clear(ret);
        err = folder_beside(1, "/" KVFATE_LIBDIR "/kvfate/" WIRE_MODULE, ret);
    }
    return err;
}

static int load(int64_t n, struct kvf_diag *d)
{
    struct buf path = {0};
    int err = module_path(&path);
    /* Global symbols, because components that MPI loads later refer to them. */
    void *module = err ? NULL : dlopen(path.data, RTLD_NOW | RTLD_GLOBAL);
    const char *why = module || err ? NULL : dlerror();
    wire = module ? dlsym(module, WIRE_SYMBOL) : NULL;
    buf_finish(&path);
    if (wire)
        return KVF_OK;
    if (err == KVF_E_NOMEM)
        return err;
    return kvf_fail(d, KVF_E_ARG,
                    "%lld processes were started together, and %s%s: each would do all of the "
                    "work; give each its part by --shard, or install MPI (docs/guide/cluster.md)",
                    (long long)n,
                    why ? "the module of MPI cannot be loaded: "
                        : "this kvfate has "
                          "no " WIRE_MODULE " beside it",
                    why ? why : "");
}

int wire_open(int *ret_rank, int *ret_size, struct kvf_diag *d)
{
    int64_t n = started_together();
    *ret_rank = 0;
    *ret_size = 1;
    if (n == 1)
        return KVF_OK;
    int err = load(n, d);
    const char *why = err ? NULL : wire->open(ret_rank, ret_size);
    if (why)
        return kvf_fail(d, KVF_E_IO, "%s", why);
    if (!err && *ret_size == 1)
        return kvf_fail(
            d, KVF_E_ARG,
            "%lld processes were started together by another MPI than the one that " WIRE_MODULE
            " was built with: each would do all of the work; use the "
            "mpirun of that one, or give each its part by --shard",
            (long long)n);
    return err;
}

/* A message is sent as one block, its two numbers and then its text, so that a dying rank cannot
 * send a part of it. */
enum { HEAD = 2 * sizeof(int64_t) };

bool wire_send(int to, const struct wire_message *m)
{
    struct buf all = {.max = HEAD + WIRE_MOST_TEXT};
    buf_add(&all, &m->kind, sizeof m->kind);
    buf_add(&all, &m->cell, sizeof m->cell);
    if (m->text)
        buf_add(&all, m->text, (size_t)m->bytes);
    bool good = !all.err;
    if (good)
        wire->send(to, all.data, (int64_t)all.len);
    buf_finish(&all);
    return good;
}

bool wire_receive(int *ret_from, struct wire_message *ret)
{
    int from = 0;
    int64_t bytes = wire->pending(&from);
    if (bytes < HEAD || bytes > HEAD + (int64_t)WIRE_MOST_TEXT)
        return false;
    char *all = MEM_NEW(char, (size_t)bytes);
    if (!all || !wire->receive(from, all, bytes)) {
        mem_free(all);
        return false;
    }
    struct wire_message m = {.bytes = bytes - HEAD};
    memcpy(&m.kind, all, sizeof m.kind);
    memcpy(&m.cell, all + sizeof m.kind, sizeof m.cell);
    memmove(all, all + HEAD, (size_t)m.bytes);
    m.text = all;
    *ret_from = from;
    *ret = m;
    return true;
}

bool wire_broadcast(int owner, void *data, int64_t bytes)
{
    return !wire || wire->broadcast(owner, data, bytes);
}

void wire_close(bool together)
{
    if (wire)
        wire->close(together);
    wire = NULL;
}
