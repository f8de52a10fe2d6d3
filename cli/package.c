/* package.c - starts Python for the commands of the Python package. */
#include "cli/package.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/folders.h"
#include "config.h"

/* Python must not load modules from the current folder, which may contain files of other people.
 * The second statement removes it from the search path. */
#define START                                                                                      \
    "import sys\n"                                                                                 \
    "sys.path = [p for p in sys.path if p]\n"                                                      \
    "try:\n"                                                                                       \
    "    from kvfate.__main__ import main\n"                                                       \
    "except KeyboardInterrupt:\n"                                                                  \
    "    sys.exit(130)\n"                                                                          \
    "except ImportError as e:\n"                                                                   \
    "    sys.exit('kvfate %s: this command is part of the Python package kvfate, which %s does '"  \
    "'not find (%s): install its wheel, or add the folder python of the sources to PYTHONPATH' "   \
    "% (sys.argv[1], sys.executable, e))\n"                                                        \
    "main()\n"

/* Prepends a folder to the list in an environment variable of this process. */
static int put_first(const char *variable, const char *folder)
{
    const char *old = getenv(variable);
    struct buf all = {0};
    buf_str(&all, folder);
    if (old && *old)
        buf_printf(&all, ":%s", old);
    int err = all.err;
    if (!err && setenv(variable, all.data, 1) != 0)
        err = KVF_E_NOMEM;
    buf_finish(&all);
    return err;
}

/* A possible location of a folder, relative to the program. */
struct place {
    int up;
    const char *tail; /* path of a file that identifies the folder */
    const char *cut;  /* end of `tail` that is cut off to obtain the folder */
};

/* Prepends the first place that exists, relative to the folder of the program. Returns KVF_OK,
 * KVF_E_NOTFOUND or KVF_E_NOMEM. */
static int first_of(const struct place *place, const char *variable)
{
    int err = KVF_E_NOTFOUND;
    for (; err == KVF_E_NOTFOUND && place->tail; place++) {
        struct buf at = {0};
        err = folder_beside(place->up, place->tail, &at);
        if (!err) {
            at.data[at.len - strlen(place->cut)] = 0;
            err = put_first(variable, at.data);
        }
        buf_finish(&at);
    }
    return err;
}

/* Sets the environment so that Python finds the package, the trace library and this program. */
static int put_folders(void)
{
#define MAIN "/kvfate/__main__.py"
#define LIBRARY "/libkvftrace.so.0"
    static const struct place package[] = {
        {2, MAIN, MAIN}, {1, "/share/kvfate/python" MAIN, MAIN}, {0}};
    static const struct place library[] = {
        {1, "/libtrace" LIBRARY, LIBRARY}, {1, "/" KVFATE_LIBDIR LIBRARY, LIBRARY}, {0}};
    static const struct place program[] = {{0, "/kvfate", "/kvfate"}, {0}};
    int err = first_of(package, "PYTHONPATH");
    if (err == KVF_E_NOTFOUND && access(KVFATE_PYTHON_SOURCE MAIN, R_OK) == 0)
        err = put_first("PYTHONPATH", KVFATE_PYTHON_SOURCE);
    if (!err || err == KVF_E_NOTFOUND)
        err = first_of(library, "LD_LIBRARY_PATH");
    if (!err || err == KVF_E_NOTFOUND)
        err = first_of(program, "PATH");
    return err == KVF_E_NOTFOUND ? KVF_OK : err;
}

int package_run(int argc, char **argv, struct kvf_diag *d)
{
    const char *given = getenv("KVFATE_PYTHON");
    const char *python = given && *given ? given : "python3";
    const char **words = mem_alloc((size_t)argc + 4, sizeof *words);
    int err = words ? put_folders() : KVF_E_NOMEM;
    if (!err) {
        words[0] = python;
        words[1] = "-c";
        words[2] = START;
        memcpy(words + 3, argv, (size_t)argc * sizeof *words);
        words[argc + 3] = NULL;
        execvp(python, (char *const *)words);
        err = kvf_fail(
            d, KVF_E_NOTFOUND,
            "Python runs this command, and %s cannot be started: %s; install Python 3.9 or "
            "later with NumPy, or set KVFATE_PYTHON to one",
            python, strerror(errno));
    }
    mem_free(words);
    return err;
}
