/* criterion.h - the subset of Criterion that the tests of traces, kernels, units and training use,
 * for machines on which Criterion does not run. tests/big_endian.sh, tests/musl.sh and tests/amx.sh
 * use this folder as a replacement. Each test runs in a separate process. */
#ifndef KVF_TESTS_BARE_CRITERION_H
#define KVF_TESTS_BARE_CRITERION_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Functions that run before and after each test of a file. */
struct bare_suite {
    void (*init)(void), (*fini)(void);
    double timeout;
};

struct bare_test {
    const char *name;
    void (*run)(void);
    struct bare_suite suite;
    struct bare_test *next;
};

/* The list of all tests, for main.c. big_endian.sh generates a main function that passes them to
 * bare_run() by name. */
__attribute__((weak)) struct bare_test *bare_tests;
__attribute__((weak)) struct bare_suite bare_around;
__attribute__((weak)) int bare_failed;

#define Test(suite_name, test_name, ...)                                                           \
    void suite_name##_##test_name(void);                                                           \
    __attribute__((constructor)) static void bare_add_##suite_name##_##test_name(void)             \
    {                                                                                              \
        static struct bare_test self = {                                                           \
            #suite_name "::" #test_name, suite_name##_##test_name, {__VA_ARGS__}, NULL};           \
        self.next = bare_tests;                                                                    \
        bare_tests = &self;                                                                        \
    }                                                                                              \
    void suite_name##_##test_name(void)
#define TestSuite(suite_name, ...)                                                                 \
    __attribute__((constructor)) static void bare_suite_##suite_name(void)                         \
    {                                                                                              \
        bare_around = (struct bare_suite){__VA_ARGS__};                                            \
    }                                                                                              \
    struct bare_suite

static inline void bare_check(int good, int fatal, const char *file, int line, const char *what,
                              const char *more, ...)
{
    if (good)
        return;
    va_list args;
    va_start(args, more);
    fprintf(stderr, "%s:%d: %s: ", file, line, what);
    vfprintf(stderr, more, args);
    fprintf(stderr, "\n");
    va_end(args);
    bare_failed = 1;
    if (fatal)
        exit(1);
}

/* Runs a test in a child process. Returns true if it failed. */
static inline int bare_run(const char *name, void (*test)(void))
{
    int status = 1;
    pid_t child = fork();
    if (child == 0) {
        if (bare_around.init)
            bare_around.init();
        test();
        if (bare_around.fini)
            bare_around.fini();
        exit(bare_failed);
    }
    if (child < 0 || waitpid(child, &status, 0) != child)
        fprintf(stderr, "%s failed: it could not be run\n", name);
    else if (WIFSIGNALED(status))
        fprintf(stderr, "%s failed: signal %d ended it\n", name, WTERMSIG(status));
    else if (status != 0)
        fprintf(stderr, "%s failed\n", name);
    return status != 0;
}

#define cr_assert(condition, ...)                                                                  \
    bare_check(!!(condition), 1, __FILE__, __LINE__, #condition, "" __VA_ARGS__)
#define cr_expect(condition, ...)                                                                  \
    bare_check(!!(condition), 0, __FILE__, __LINE__, #condition, "" __VA_ARGS__)
#define cr_skip_test(...) exit(bare_failed)
#define cr_fatal(...) bare_check(0, 1, __FILE__, __LINE__, "cr_fatal", "" __VA_ARGS__)

#endif
