/* fuzz_json.c - any text: the JSON readers agree about it (json_readers.h). */
#include "../json_readers.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    bool read;
    if (n <= JSON_MOST)
        MUST(json_readers_agree((const char *)data, n, &read));
    return 0;
}
