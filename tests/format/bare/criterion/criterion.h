/* criterion.h - so much of Criterion as the tests of traces use, for machines that it does not run
 * on: tests/big_endian.sh puts this folder in its place.  Each test runs in a process of its own.
 */
#ifndef KVF_TESTS_BARE_CRITERION_H
#define KVF_TESTS_BARE_CRITERION_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* The script makes a main that gives all of these to bare_run. */
#define Test(suite, name, ...) void suite##_##name(void)

static int bare_failed;

static inline void bare_check(int good, int fatal, const char *file, int line, const char *what)
{
    if (good)
        return;
    fprintf(stderr, "%s:%d: %s\n", file, line, what);
    bare_failed = 1;
    if (fatal)
        exit(1);
}

/* Whether it failed. */
static inline int bare_run(const char *name, void (*test)(void))
{
    int status = 1;
    pid_t child = fork();
    if (child == 0) {
        test();
        exit(bare_failed);
    }
    if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
        fprintf(stderr, "%s failed\n", name);
    return status != 0;
}

/* Without what an assertion says beside its condition. */
#define BARE_CONDITION(condition, ...) (condition)
#define cr_assert(...)                                                                             \
    bare_check(!!BARE_CONDITION(__VA_ARGS__, ), 1, __FILE__, __LINE__, #__VA_ARGS__)
#define cr_expect(...)                                                                             \
    bare_check(!!BARE_CONDITION(__VA_ARGS__, ), 0, __FILE__, __LINE__, #__VA_ARGS__)

#endif
