/* version.c - the version of the library. */
#include <kvf/version.h>

const char *kvf_version(void)
{
    return KVF_VERSION_STRING;
}
