#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>

#define KVF_DRAWING_LIBS_LOADER /* strings here are the names themselves */
#include "render/drawing_libs.h"

struct drawing drawing;
static struct kvf_diag why;
static bool opened;

struct symbol {
    const char *name;
    void *to; /* a pointer to a function of the struct */
};

#define X(name) {#name, &drawing.name},
static const struct symbol of_pangocairo[] = {DRAWING_PANGOCAIRO(X)};
static const struct symbol of_png[] = {DRAWING_PNG(X)};
#undef X

/* The library stays open to the end; those that it needs come with it. */
static bool open_one(const char *file, const struct symbol *list, size_t n)
{
    void *lib = dlopen(file, RTLD_LAZY);
    for (size_t i = 0; lib && i < n; i++) {
        void *found = dlsym(lib, list[i].name);
        if (!found) {
            kvf_fail(&why, KVF_E_NOTFOUND, "figures need %s with %s", file, list[i].name);
            return false;
        }
        memcpy(list[i].to, &found, sizeof found); /* POSIX: they have the same form */
    }
    if (!lib)
        kvf_fail(&why, KVF_E_NOTFOUND, "figures need %s: %s", file, dlerror());
    return lib != NULL;
}

static void open_all(void)
{
    opened = open_one("libpangocairo-1.0.so.0", of_pangocairo,
                      sizeof of_pangocairo / sizeof *of_pangocairo)
             && open_one("libpng16.so.16", of_png, sizeof of_png / sizeof *of_png);
}

int drawing_open(struct kvf_diag *d)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, open_all);
    if (!opened && d)
        *d = why;
    return opened ? KVF_OK : KVF_E_NOTFOUND;
}
