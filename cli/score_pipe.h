/* score_pipe.h - asks another program for the scores of score=external (--score-pipe R,W).
 *
 * The other program starts kvfate and hands it two open file descriptors: kvfate reads answers from
 * R and writes requests to W.  First the other program sends a greeting of 64 bytes:
 *   char [4]   "KVFS"
 *   int32      1, the version of these messages
 *   int32      the parts of requests that it needs (EXTERNAL_KEYS, ...)
 *   char [52]  the name of the score, padded with zeros; the run header records it
 * Then it answers each request.  external.h defines requests and answers. */
#ifndef KVF_CLI_SCORE_PIPE_H
#define KVF_CLI_SCORE_PIPE_H

#include <stdint.h>

#include <kvf/err.h>

#include "engine/method/external.h"

enum { SCORE_NAME = 52 };

struct score_pipe {
    const char *text; /* option --score-pipe; NULL if not given */
    int64_t seconds;  /* option --score-timeout */
    struct external external;
    int from, to;           /* file descriptors */
    char name[SCORE_NAME];  /* of the score; "" if the pipe is not open */
    struct kvf_diag failed; /* the sentence of external.err */
};

/* Reads the greeting.  Has no effect without --score-pipe.  Returns KVF_OK, KVF_E_ARG or KVF_E_IO
 * with a sentence. */
int score_pipe_open(struct score_pipe *p, struct kvf_diag *d);

#endif
