/* driver.c - wraps a driver, as libcuda.so.1 in LD_LIBRARY_PATH, and changes the reported versions.
 * The CUDA version is KVF_DRIVER_VERSION, and devices have compute capability KVF_DRIVER_MAJOR.0.
 * All other calls go to the driver in the file KVF_DRIVER. Without KVF_DRIVER, there is no
 * driver. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { NOT_FOUND = 500, MAJOR = 75, MINOR = 76 }; /* constants of the driver API */

int cuInit(unsigned flags);
int cuDriverGetVersion(int *version);
int cuDeviceGetAttribute(int *value, int attribute, int device);
int cuGetExportTable(const void **table, const void *id);
int cuGetProcAddress(const char *name, void **ret, int version, uint64_t flags);
int cuGetProcAddress_v2(const char *name, void **ret, int version, uint64_t flags, int *status);

/* Sets *ret to a pointer to a function, or to NULL if there is no driver. */
static void find(const char *name, void *ret)
{
    static void *library;
    const char *file = getenv("KVF_DRIVER");
    if (!library && file && *file)
        library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    void *p = library ? dlsym(library, name) : NULL;
    memcpy(ret, &p, sizeof p); /* POSIX: data and function pointers have the same size */
}

static int said(const char *name, int otherwise)
{
    const char *number = getenv(name);
    return number ? atoi(number) : otherwise;
}

int cuInit(unsigned flags)
{
    int (*f)(unsigned);
    find("cuInit", &f);
    return f ? f(flags) : 0;
}

int cuDriverGetVersion(int *version)
{
    int (*f)(int *);
    find("cuDriverGetVersion", &f);
    int err = f ? f(version) : 0;
    *version = said("KVF_DRIVER_VERSION", f ? *version : 0);
    return err;
}

int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    int (*f)(int *, int, int);
    find("cuDeviceGetAttribute", &f);
    int err = f ? f(value, attribute, device) : NOT_FOUND;
    if (!err && attribute == MAJOR)
        *value = said("KVF_DRIVER_MAJOR", *value);
    if (!err && attribute == MINOR && said("KVF_DRIVER_MAJOR", 0))
        *value = 0;
    return err;
}

int cuGetExportTable(const void **table, const void *id)
{
    int (*f)(const void **, const void *);
    find("cuGetExportTable", &f);
    return f ? f(table, id) : NOT_FOUND;
}

/* Sets *ret to the function of this name in this file and returns 0; otherwise returns err.
 * cuGetProcAddress has two forms; the CUDA version of the caller selects one. */
static int found(int err, const char *name, int version, void **ret)
{
    enum { SECOND = 12000 };
    typedef void (*function)(void);
    const struct {
        const char *name;
        function here;
    } all[] = {
        {"cuInit", (function)cuInit},
        {"cuDriverGetVersion", (function)cuDriverGetVersion},
        {"cuDeviceGetAttribute", (function)cuDeviceGetAttribute},
        {"cuGetExportTable", (function)cuGetExportTable},
        {"cuGetProcAddress",
         version < SECOND ? (function)cuGetProcAddress : (function)cuGetProcAddress_v2},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (strcmp(all[i].name, name) == 0) {
            memcpy(ret, &all[i].here, sizeof all[i].here);
            return 0;
        }
    }
    return err;
}

int cuGetProcAddress(const char *name, void **ret, int version, uint64_t flags)
{
    int (*f)(const char *, void **, int, uint64_t);
    find("cuGetProcAddress", &f);
    return found(f ? f(name, ret, version, flags) : NOT_FOUND, name, version, ret);
}

int cuGetProcAddress_v2(const char *name, void **ret, int version, uint64_t flags, int *status)
{
    int (*f)(const char *, void **, int, uint64_t, int *);
    find("cuGetProcAddress_v2", &f);
    return found(f ? f(name, ret, version, flags, status) : NOT_FOUND, name, version, ret);
}
