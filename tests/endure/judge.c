/* judge.c - compares files that should be a trace, or the beginning of a trace, with the complete
 * trace.
 *
 *   judge REFERENCE    then a path a line; "new PATH" takes another reference
 *
 * Answers each path with a line: the result of verify, if the trace is closed, the result of verify
 * for its tail, and for the modes tail and salvage if it opens, its steps, if any content is wrong,
 * and how many parts cannot be read. */
#include <stdio.h>
#include <string.h>

#include "tests/endure/compare.h"

static void look(const struct reference *r, const char *path, enum kvf_open_mode mode)
{
    struct kvf_trace *t = NULL;
    struct shown s = {0};
    bool opens = kvf_open(path, mode, &t, NULL) == KVF_OK;
    if (opens)
        s = reference_compare(r, t);
    kvf_close(t);
    printf(" %d %u %d %u", opens, s.n_steps, s.wrong, s.lost);
}

int main(int argc, char **argv)
{
    char line[4096];
    struct reference *r = argc == 2 ? reference_open(argv[1]) : NULL;
    while (r && fgets(line, sizeof line, stdin)) {
        struct kvf_check c = {0}, tail = {0};
        struct kvf_diag d = {""};
        line[strcspn(line, "\n")] = 0;
        if (strncmp(line, "new ", 4) == 0) {
            reference_close(r);
            r = reference_open(line + 4);
            continue;
        }
        int err = kvf_verify(line, 1, &c, NULL), of_tail = kvf_verify_tail(line, 1, &tail, &d);
        printf("%d %d %d", err, c.clean, of_tail);
        look(r, line, KVF_OPEN_TAIL);
        look(r, line, KVF_OPEN_SALVAGE);
        printf("\n");
        fflush(stdout);
    }
    if (!r)
        fprintf(stderr, "no reference\n");
    reference_close(r);
    return !r;
}
