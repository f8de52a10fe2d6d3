/* err.h - error codes, and a diagnosis of a failure in one line.
 *
 * Functions return KVF_OK (0) or a negative code. Programs use the code. The sentence for people
 * is in a struct kvf_diag, which functions that fail because of *data* take as their last argument
 * (NULL if not wanted).
 *
 * This header is installed with libkvftrace: it is plain C11 and C++.
 */
#ifndef KVF_ERR_H
#define KVF_ERR_H

#ifdef __cplusplus
extern "C" {
#endif

#define KVF_ERR_MAP(X)                                                                             \
    X(NOMEM, -1, "out of memory")                                                                  \
    X(IO, -2, "input/output error")                                                                \
    X(FORMAT, -3, "malformed data")                                                                \
    X(VERSION, -4, "unsupported version")                                                          \
    X(ARG, -5, "invalid argument")                                                                 \
    X(NOTFOUND, -6, "not found")                                                                   \
    X(CORRUPT, -7, "damaged data")                                                                 \
    X(BACKEND, -8, "compute backend failed")                                                       \
    X(LIMIT, -9, "limit exceeded")                                                                 \
    X(CANCEL, -10, "interrupted")

enum kvf_err {
    KVF_OK = 0,
#define X(name, code, text) KVF_E_##name = code,
    KVF_ERR_MAP(X)
#undef X
};

/* One sentence: the problem, its place and the remedy. Control characters, for example of file
 * names, are replaced, so it is always one line. */
struct kvf_diag {
    char text[512];
};

#if defined(__GNUC__)
#define KVF_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define KVF_PRINTF(fmt, args)
#endif

/* Returns a text such as "out of memory"; a fixed text for unknown codes, never NULL. */
const char *kvf_strerror(int err);

/* Formats a sentence into d (ignored if NULL) and returns err, so that
 *     return kvf_fail(d, KVF_E_FORMAT, "%s: ...", path, ...);
 * reports and fails in one statement. It replaces an earlier sentence; kvf_diag_prefix() adds
 * context to it.
 */
int kvf_fail(struct kvf_diag *d, int err, const char *fmt, ...) KVF_PRINTF(3, 4);

/* Prepends "prefix: " to the sentence in d. A long text is truncated at its end. */
void kvf_diag_prefix(struct kvf_diag *d, const char *fmt, ...) KVF_PRINTF(2, 3);

#ifdef __cplusplus
}
#endif
#endif
