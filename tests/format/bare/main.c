/* main.c - runs the tests of a file without Criterion; see criterion/criterion.h.
 *
 * usage: PROGRAM [NAME]   only tests with NAME in their name */
#include <criterion/criterion.h>

int main(int argc, char **argv)
{
    const char *part = argc > 1 && argv[1][0] != '-' ? argv[1] : "";
    int failed = 0, run = 0;
    for (const struct bare_test *t = bare_tests; t; t = t->next)
        if (strstr(t->name, part)) {
            failed += bare_run(t->name, t->run);
            run++;
        }
    printf("%d tests, %d failed\n", run, failed);
    return failed > 0;
}
