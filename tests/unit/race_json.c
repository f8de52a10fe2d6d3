/* race_json.c - threads that parse valid and invalid JSON. Two threads must never be inside cJSON
 * at once, since it writes a global variable. The cJSON library is not built for ThreadSanitizer,
 * so a hook that cJSON calls while it parses increments a plain counter. A race on the counter
 * means a race in the library. */
#include <cjson/cJSON.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/json.h"

enum { THREADS = 4, ROUNDS = 100 };

static long calls; /* not atomic on purpose */
static atomic_int inside, met;

static void *hooked(size_t n)
{
    calls++;
    if (atomic_fetch_add(&inside, 1) > 0)
        atomic_store(&met, 1);
    nanosleep(&(struct timespec){.tv_nsec = 1000}, NULL); /* let another thread run */
    atomic_fetch_sub(&inside, 1);
    return malloc(n);
}

static void *parse(void *ctx)
{
    static const char good[] = "{\"a\": [1, 2, {\"b\": \"c\"}]}", bad[] = "[1, 2, x]";
    long *wrong = ctx;
    for (int r = 0; r < ROUNDS; r++) {
        struct kvf_diag d = {""};
        struct json *j = NULL;
        if (json_parse(good, sizeof good - 1, &j, &d) != KVF_OK
            || json_int(json_at(json_get(j, "a"), 1), 0) != 2)
            ++*wrong;
        json_free(j);
        if (json_parse(bad, sizeof bad - 1, &j, &d) != KVF_E_FORMAT || !strstr(d.text, "byte 7"))
            ++*wrong;
    }
    return NULL;
}

int main(void)
{
    pthread_t thread[THREADS];
    long wrong[THREADS] = {0}, all = 0;
    cJSON_InitHooks(&(cJSON_Hooks){hooked, free});
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&thread[i], NULL, parse, &wrong[i]) != 0)
            return 2;
    for (int i = 0; i < THREADS; i++) {
        pthread_join(thread[i], NULL);
        all += wrong[i];
    }
    if (all || atomic_load(&met) || !calls)
        fprintf(stderr, "%ld wrong, two threads within cJSON: %d, calls %ld\n", all,
                atomic_load(&met), calls);
    return all || atomic_load(&met) || !calls;
}
