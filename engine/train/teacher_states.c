/* teacher_states.c - reads and writes stored hidden states of the teacher. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/buf.h"
#include "base/replace.h"
#include "engine/train/teacher_states.h"

enum { HASH = 16 };

static void digest(XXH128_hash_t h, unsigned char out[HASH])
{
    XXH128_canonical_t c;
    XXH128_canonicalFromHash(&c, h);
    memcpy(out, c.digest, HASH);
}

/* Hashes everything that the states depend on. Returns false if memory is exhausted. */
static bool make_key(const struct teacher_states *s, const struct pack *pack, int d,
                     unsigned char out[HASH])
{
    XXH3_state_t *x = XXH3_createState();
    const int32_t shape[2] = {(int32_t)pack->n, (int32_t)d};
    if (!x)
        return false;
    XXH3_128bits_reset(x);
    XXH3_128bits_update(x, s->model, strlen(s->model) + 1);
    XXH3_128bits_update(x, shape, sizeof shape);
    XXH3_128bits_update(x, pack->ids, (size_t)pack->n * sizeof *pack->ids);
    XXH3_128bits_update(x, pack->first, (size_t)pack->n * sizeof *pack->first);
    digest(XXH3_128bits_digest(x), out);
    XXH3_freeState(x);
    return true;
}

static int path_of(const struct teacher_states *s, const unsigned char key[HASH], struct buf *path)
{
    buf_printf(path, "%s/", s->folder);
    for (int i = 0; i < HASH; i++)
        buf_printf(path, "%02x", key[i]);
    buf_str(path, ".f32");
    return path->err;
}

/* Combines the hash of the bytes with the key, so that a renamed file is detected. */
static void seal(const float *x, size_t n, const unsigned char key[HASH], unsigned char out[HASH])
{
    XXH128_hash_t h = XXH3_128bits(x, n);
    digest(h, out);
    for (int i = 0; i < HASH; i++)
        out[i] ^= key[i];
}

static bool read_all(int fd, void *to, size_t n)
{
    for (size_t done = 0; done < n;) {
        ssize_t got = read(fd, (char *)to + done, n - done);
        if (got <= 0)
            return false;
        done += (size_t)got;
    }
    return true;
}

static bool read_file(const char *path, const unsigned char key[HASH], float *out, size_t n)
{
    unsigned char want[HASH], got[HASH];
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return false;
    bool ok = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size == (off_t)(n + HASH)
              && read_all(fd, out, n) && read_all(fd, got, HASH);
    close(fd);
    if (ok)
        seal(out, n, key, want);
    return ok && memcmp(got, want, HASH) == 0;
}

bool teacher_states_read(const struct teacher_states *s, const struct pack *pack, int d, float *out)
{
    unsigned char key[HASH];
    struct buf path = {0};
    if (!s || !make_key(s, pack, d, key))
        return false;
    bool ok = path_of(s, key, &path) == KVF_OK
              && read_file(path.data, key, out, (size_t)pack->n * (size_t)d * sizeof *out);
    buf_finish(&path);
    return ok;
}

/* Returns the bytes of all files in a folder; -1 and errno after an error. */
static int64_t measure(const char *folder)
{
    DIR *dir = opendir(folder);
    int64_t sum = 0;
    if (!dir)
        return -1;
    for (struct dirent *e = readdir(dir); e; e = readdir(dir)) {
        struct stat st; /* fails for a file that another process has just removed or renamed */
        if (fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode))
            sum += st.st_size;
    }
    closedir(dir);
    return sum;
}

/* Reserves n bytes within the limit. Other trainings fill the folder too. An eighth of the free
 * bytes can be written before the next measurement, so that 8 processes cannot exceed the limit
 * together. */
static int take_room(struct teacher_states *s, int64_t n)
{
    if (n > s->trust) {
        int64_t held = measure(s->folder);
        if (held < 0)
            return kvf_fail(&s->why, KVF_E_IO, "%s: %s", s->folder, strerror(errno));
        if (n > s->limit - held)
            return kvf_fail(&s->why, KVF_E_LIMIT,
                            "%s has %lld bytes of at most %lld; remove files there, or give a "
                            "larger --teacher-limit",
                            s->folder, (long long)held, (long long)s->limit);
        s->trust = (s->limit - held) / 8;
    }
    s->trust -= n;
    return KVF_OK;
}

static int write_file(struct teacher_states *s, const char *path, const unsigned char key[HASH],
                      const float *x, size_t n)
{
    unsigned char sum[HASH];
    struct replace r;
    int err = replace_open(&r, path, &s->why);
    if (err) /* another training may be writing this pack */
        return r.error == EBUSY ? KVF_OK : err;
    seal(x, n, key, sum);
    replace_write(&r, x, n);
    replace_write(&r, sum, HASH);
    return replace_finish(&r, &s->why);
}

void teacher_states_write(struct teacher_states *s, const struct pack *pack, int d, const float *x)
{
    unsigned char key[HASH];
    struct buf path = {0};
    size_t n = (size_t)pack->n * (size_t)d * sizeof *x;
    if (!s || s->stopped)
        return;
    s->why.text[0] = '\0';
    int err = make_key(s, pack, d, key) ? take_room(s, (int64_t)n + HASH) : KVF_E_NOMEM;
    if (!err)
        err = path_of(s, key, &path);
    if (!err)
        err = write_file(s, path.data, key, x, n);
    buf_finish(&path);
    s->stopped = err != KVF_OK;
    if (err && !s->why.text[0])
        kvf_fail(&s->why, err, "%s", kvf_strerror(err));
}
