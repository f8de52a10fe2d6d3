/* score_pipe.c - asks a second program for the scores of score=external (score_pipe.h). */
#include "cli/score_pipe.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/opt.h"
#include "cli/signals.h"

enum { VERSION = 1, GREETING = 12 + SCORE_NAME };

/* Waits until the descriptor can be read or written.  Returns KVF_OK or an error with a sentence.
 */
static int wait_for(const struct score_pipe *p, int fd, short event, struct kvf_diag *d)
{
    struct pollfd one = {.fd = fd, .events = event};
    int64_t left = p->seconds * 10; /* tenths of a second: a signal is noticed soon */
    for (; left > 0; left--) {
        int n = poll(&one, 1, 100);
        if (n > 0)
            return KVF_OK;
        if (n < 0 && errno != EINTR)
            return kvf_fail(d, KVF_E_IO, "--score-pipe %s: %s", p->text, strerror(errno));
        if (signals_caught())
            return kvf_fail(d, KVF_E_IO, "--score-pipe %s: interrupted while scores were computed",
                            p->text);
    }
    return kvf_fail(d, KVF_E_IO,
                    "--score-pipe %s: the program that computes the scores did not answer in %lld "
                    "seconds; make it faster, or raise --score-timeout",
                    p->text, (long long)p->seconds);
}

static int ended(const struct score_pipe *p, struct kvf_diag *d)
{
    return kvf_fail(d, KVF_E_IO,
                    "--score-pipe %s: the program that computes the scores has ended; its own "
                    "message has the reason",
                    p->text);
}

/* Reads n bytes to `in`, or writes n bytes of `out` to a descriptor that does not block. The unused
 * pointer is NULL.  Returns KVF_OK or an error with a sentence. */
static int transfer(const struct score_pipe *p, char *in, const char *out, size_t n,
                    struct kvf_diag *d)
{
    size_t done = 0;
    while (done < n) {
        int err = wait_for(p, in ? p->from : p->to, in ? POLLIN : POLLOUT, d);
        if (err)
            return err;
        ssize_t some = in ? read(p->from, in + done, n - done) : write(p->to, out + done, n - done);
        if ((in && some == 0) || (some < 0 && errno == EPIPE))
            return ended(p, d);
        if (some < 0 && errno != EINTR && errno != EAGAIN)
            return kvf_fail(d, KVF_E_IO, "--score-pipe %s: %s", p->text, strerror(errno));
        done += some > 0 ? (size_t)some : 0;
    }
    return KVF_OK;
}

static int ask(void *ctx, const void *request, size_t n, float *ret_score, int n_scores)
{
    struct score_pipe *p = ctx;
    int32_t told = 0;
    int err = transfer(p, NULL, request, n, &p->failed);
    if (!err)
        err = transfer(p, (char *)&told, NULL, sizeof told, &p->failed);
    if (!err && told != n_scores)
        err = kvf_fail(&p->failed, KVF_E_FORMAT,
                       "--score-pipe %s: %s answered with %d scores for %d entries; return one "
                       "score per entry",
                       p->text, p->name, (int)told, n_scores);
    if (!err)
        err = transfer(p, (char *)ret_score, NULL, (size_t)n_scores * sizeof *ret_score,
                       &p->failed);
    for (int i = 0; !err && i < n_scores; i++)
        if (isnan(ret_score[i]))
            err = kvf_fail(&p->failed, KVF_E_FORMAT,
                           "--score-pipe %s: %s answered with NaN as score %d of %d; return a "
                           "number",
                           p->text, p->name, i, n_scores);
    return err;
}

/* Parses "R,W", two open descriptors above 2. */
static bool parse(struct score_pipe *p)
{
    int end = 0;
    return sscanf(p->text, "%9d,%9d%n", &p->from, &p->to, &end) == 2 && !p->text[end] && p->from > 2
           && p->to > 2 && p->from != p->to && fcntl(p->from, F_GETFL) >= 0
           && fcntl(p->to, F_GETFL) >= 0;
}

int score_pipe_open(struct score_pipe *p, struct kvf_diag *d)
{
    char hello[GREETING];
    int32_t version, parts;
    if (!p->text)
        return KVF_OK;
    if (!parse(p))
        return kvf_fail(d, KVF_E_ARG,
                        "--score-pipe %s: give two open file descriptors above 2, of which the "
                        "first is read and the second written; kvfate.run() in Python does so",
                        p->text);
    signal(SIGPIPE, SIG_IGN); /* a closed pipe is an error with a sentence */
    fcntl(p->to, F_SETFL, fcntl(p->to, F_GETFL) | O_NONBLOCK);
    int err = transfer(p, (char *)hello, NULL, sizeof hello, d);
    if (err)
        return err;
    memcpy(&version, hello + 4, 4);
    memcpy(&parts, hello + 8, 4);
    if (memcmp(hello, "KVFS", 4) != 0 || version != VERSION || hello[GREETING - 1])
        return kvf_fail(d, KVF_E_FORMAT,
                        "--score-pipe %s: the connected program does not send the greeting of "
                        "version %d; use a kvfate package of the same version as this program",
                        p->text, VERSION);
    memcpy(p->name, hello + 12, SCORE_NAME);
    p->external = (struct external){.parts = (unsigned)parts, .ask = ask, .ctx = p};
    return KVF_OK;
}
