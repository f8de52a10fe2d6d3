/* common.c - declares and handles the options that every command takes (common.h). */
#include "cli/common.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "analyzers/analyzer.h"
#include "base/files.h"
#include "base/progress.h"

static const struct opt common_table[COMMON_OPTIONS] = {
    {OPT_FLAG, 'q', "quiet", offsetof(struct common, quiet), NULL,
     "print only errors on the standard error"},
    {OPT_FLAG, 'v', "verbose", offsetof(struct common, verbose), NULL,
     "print the time and the memory that the command used"},
    {OPT_STR, 'o', "output", offsetof(struct common, out), "FILE.txt|FILE.json",
     "write the standard output to this file"},
    {OPT_FLAG, 0, "overwrite", offsetof(struct common, overwrite), NULL,
     "replace an existing file; -o always does so"},
    {OPT_BARRED, 0, "json", .help = "this command prints no table as JSON; leave --json out"},
    {OPT_BARRED, 't', "threads", .help = "this command computes on one thread; leave -t out"},
};

static bool declared(const struct opt *list, const char *name)
{
    size_t at;
    return list && opt_find(list, name, &at);
}

void common_options(const struct command *c, const struct analyzer *a,
                    struct opt ret[COMMON_OPTIONS + 1])
{
    int n = 0;
    for (int i = 0; i < COMMON_OPTIONS; i++) {
        const struct opt *o = &common_table[i];
        if (!declared(c->options, o->name) && !declared(a ? a->options : NULL, o->name))
            ret[n++] = *o;
    }
    ret[n] = (struct opt){.type = OPT_END};
}

/* Makes the standard output the file of -o. */
static int redirect_output(struct common *x, char *const *operand, int n, struct kvf_diag *d)
{
    int err = files_keep(x->out, operand, n, d);
    if (!err)
        err = replace_open(&x->file, x->out, d);
    if (!err && (fflush(stdout) != 0 || dup2(x->file.fd, STDOUT_FILENO) < 0))
        err = kvf_fail(d, KVF_E_IO, "-o %s: cannot write there: %s", x->out, strerror(errno));
    return err;
}

int common_begin(struct common *x, char *const *operand, int n, struct kvf_diag *d)
{
    x->start = clock_seconds();
    x->file = (struct replace)REPLACE_CLOSED;
    if (x->quiet && x->verbose)
        return kvf_fail(d, KVF_E_ARG, "--quiet and --verbose exclude each other; give one");
    int err = x->quiet ? command_quiet(d) : KVF_OK;
    if (!err && x->out && strcmp(x->out, "-") != 0)
        err = redirect_output(x, operand, n, d);
    return err;
}

int common_end(const struct command *self, struct common *x, int status)
{
    struct kvf_diag d = {""};
    struct rusage use;
    bool written = x->file.fd >= 0 && fflush(stdout) == 0 && lseek(x->file.fd, 0, SEEK_CUR) > 0;
    if (x->file.fd >= 0 && (status == EXIT_OK || (written && status != EXIT_USAGE))) {
        int err = replace_finish(&x->file, &d);
        if (err)
            status = command_end(self, err, &d);
    }
    replace_abandon(&x->file);
    if (x->verbose && status != EXIT_USAGE && getrusage(RUSAGE_SELF, &use) == 0)
        command_print(self->name, "%.2f s, %.1f MiB of memory at the peak",
                      clock_seconds() - x->start, (double)use.ru_maxrss / 1024);
    return status;
}
