/* test_writing.c - a separate thread writes the trace. Decoding never waits for the file, the bytes
 * do not depend on the file's speed, and errors are reported. The test wraps the write calls to
 * make the file slow or full. */
#include <errno.h>
#include <pthread.h>
#include <sys/uio.h>

#include "engine/probe/pen.h"
#include "tests/engine/golden.h"

#ifdef EMULATED /* 0: a real device */
#include "tests/cuda/device.h"
#define BACKENDS                                                                                   \
    {                                                                                              \
        &backend_cpu, &backend_cuda                                                                \
    }
enum { N_BACKENDS = 2, SAME_BYTES = EMULATED };
#else
#define BACKENDS                                                                                   \
    {                                                                                              \
        &backend_cpu                                                                               \
    }
enum { N_BACKENDS = 1, SAME_BYTES = 1 };
static void device_needed(void) {}
#endif
static const struct backend *const backends[] = BACKENDS;

enum { BLOCK = 64, PROMPT = 60, STEPS = 12, CAP = PROMPT + STEPS + 1, BUDGET = 24 };

/* The gate of the wrapped write calls: shut makes them wait, and `left` is how many may still
 * succeed. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool shut;
    long left, calls, waiting;
} gate = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void set_gate(bool shut, long left)
{
    pthread_mutex_lock(&gate.lock);
    gate.shut = shut;
    gate.left = left;
    gate.calls = 0;
    pthread_cond_broadcast(&gate.changed);
    pthread_mutex_unlock(&gate.lock);
}

static long calls_so_far(void)
{
    pthread_mutex_lock(&gate.lock);
    long n = gate.calls;
    pthread_mutex_unlock(&gate.lock);
    return n;
}

/* Returns when a write call waits at the gate. */
static void await_call(void)
{
    pthread_mutex_lock(&gate.lock);
    while (gate.waiting == 0)
        pthread_cond_wait(&gate.changed, &gate.lock);
    pthread_mutex_unlock(&gate.lock);
}

static void *open_later(void *arg)
{
    usleep(300000);
    set_gate(false, -1);
    return arg;
}

/* Waits until the gate is open. Returns true if the write call may succeed. */
static bool pass(void)
{
    pthread_mutex_lock(&gate.lock);
    gate.waiting++;
    pthread_cond_broadcast(&gate.changed);
    while (gate.shut)
        pthread_cond_wait(&gate.changed, &gate.lock);
    gate.waiting--;
    gate.calls++;
    bool full = gate.left == 0;
    gate.left -= gate.left > 0;
    pthread_mutex_unlock(&gate.lock);
    return !full;
}

ssize_t __real_pwritev64(int fd, const struct iovec *v, int n, off_t at);
ssize_t __wrap_pwritev64(int fd, const struct iovec *v, int n, off_t at);
ssize_t __wrap_pwritev64(int fd, const struct iovec *v, int n, off_t at)
{
    if (pass())
        return __real_pwritev64(fd, v, n, at);
    errno = ENOSPC;
    return -1;
}

struct told {
    int err;           /* error of the first failed step, or of recorder_finish */
    int steps;         /* successful steps */
    struct kvf_diag d; /* message of recorder_finish */
    char *trace;       /* content of the trace file at the end; NULL: no file */
    size_t n;
    long during, calls; /* write calls during the steps, and in total */
    uint32_t kept;      /* steps in the unfinished trace file */
};

static struct recorder *record(struct engine *e, const char *path, const int32_t *ids)
{
    const struct model_config *m = &e->config;
    const struct probe_config cfg = {.shape = {m->n_layers, m->n_heads, m->n_kv_heads, m->head_dim},
                                     .cap = CAP,
                                     .kernels = &e->kernels,
                                     .evicts = true};
    const struct recorder_run run = {
        .header = "{}", .existing = KVF_OVERWRITE, .without_tail = true, .block = BLOCK};
    struct kvf_diag d = {""};
    struct recorder *rec = NULL;
    unsigned set;
    cr_assert(zero(int, probes_parse("lean,calibration,window,returns", &set, &d)), "%s", d.text);
    cr_assert(zero(int, recorder_create(path, &run, set, &cfg, par_threads(e->pool), &rec, &d)));
    for (int i = 0; i < PROMPT; i++)
        cr_assert(zero(int, recorder_token(rec, ids[i], KVF_ROLE_PROMPT, "ab", 2)));
    return rec;
}

/* Verifies the unfinished trace file, removes it, and returns its number of steps. */
static uint32_t steps_of_unfinished(const char *path)
{
    char name[64];
    struct kvf_trace *t = NULL;
    struct kvf_check check;
    snprintf(name, sizeof name, "%s.unfinished", path);
    succeeds(kvf_verify(name, 1, &check, &d));
    succeeds(kvf_open(name, 0, &t, &d));
    uint32_t n = kvf_n_steps(t);
    kvf_close(t);
    unlink(name);
    return n;
}

/* Runs a session whose file allows `left` more write calls after its creation (-1: any number).
 * With `slow`, it allows no call before the last step. */
static struct told play(const struct backend *backend, bool slow, long left)
{
    const struct engine_options opt = {.exact = true, .n_threads = 1, .backend = backend};
    char path[] = "/tmp/kvf-writing-XXXXXX";
    struct told o = {.steps = 0};
    pthread_t opener;
    struct engine *e = NULL;
    int32_t ids[CAP];
    cr_assert(zero(int, engine_open(tiny_path(4), &opt, &e, &o.d)), "%s", o.d.text);
    for (int i = 0; i < CAP; i++)
        ids[i] = (int32_t)((size_t)(i * i + 3) % (size_t)e->config.vocab);
    close(mkstemp(path));
    set_gate(false, -1);
    struct choice c = choose("window", BUDGET);
    struct recorder *rec = record(e, path, ids);
    struct session *s = open_session(e, &c, CAP, 0, rec);
    set_gate(slow, left);
    o.err = session_prompt(s, ids, PROMPT, NULL, NULL);
    for (; !o.err && o.steps < STEPS; o.steps += !o.err) {
        recorder_token(rec, ids[PROMPT + o.steps], KVF_ROLE_ANSWER, "c", 1);
        o.err = session_step(s, ids[PROMPT + o.steps]);
    }
    o.during = calls_so_far();
    if (slow)
        await_call();
    if (slow && left < 0) /* the end is requested while all data are still unwritten */
        cr_assert(zero(int, pthread_create(&opener, NULL, open_later, NULL)));
    if (slow && left >= 0) { /* the next step reports the error */
        set_gate(false, left);
        while (!recorder_err(rec))
            usleep(1000);
        recorder_token(rec, ids[CAP - 1], KVF_ROLE_ANSWER, "c", 1);
        o.err = session_step(s, ids[CAP - 1]);
        cr_expect(eq(int, o.err, KVF_E_IO));
    }
    int err = recorder_finish(rec, "{}", &o.d);
    o.err = o.err ? o.err : err;
    if (slow && left < 0)
        pthread_join(opener, NULL);
    o.calls = calls_so_far();
    session_destroy(s);
    engine_close(e);
    set_gate(false, -1);
    if (o.err)
        o.kept = steps_of_unfinished(path);
    else
        o.trace = read_whole(path, &o.n);
    unlink(path);
    return o;
}

/* The steps pass the first block of tokens, where streams and a snapshot are due, while the file
 * blocks. A step that waited for the file would wait forever. */
Test(writing, steps_never_wait_for_the_file, .timeout = 240)
{
    struct told first = {.n = 0};
    device_needed();
    for (int i = 0; i < N_BACKENDS; i++) {
        struct told quick = play(backends[i], false, -1), slow = play(backends[i], true, -1);
        cr_expect(zero(int, quick.err), "%s", quick.d.text);
        cr_expect(zero(int, slow.err), "%s", slow.d.text);
        cr_expect(zero(long, slow.during));
        cr_assert(eq(ulong, slow.n, quick.n));
        cr_expect(zero(int, memcmp(slow.trace, quick.trace, quick.n)));
        first = i == 0 ? quick : first;
        if (SAME_BYTES) { /* a real device may differ in the last digit of exp */
            cr_assert(eq(ulong, quick.n, first.n));
            cr_expect(zero(int, memcmp(quick.trace, first.trace, first.n)));
        }
    }
}

/* If the disk is full after some calls, one sentence reports it, and the data written so far can be
 * read. */
Test(writing, a_full_disk_is_told, .timeout = 240)
{
    device_needed();
    const struct told whole = play(&backend_cpu, false, -1);
    for (int i = 0; i < N_BACKENDS; i++) {
        const long left[] = {3, whole.calls - 2}; /* the latter: its index and end fail */
        for (int k = 0; k < 2 - i; k++) {
            struct told o = play(backends[i], k == 0, left[k]);
            cr_expect(eq(int, o.err, KVF_E_IO));
            cr_expect(ne(ptr, strstr(o.d.text, "No space left on device"), NULL), "%s", o.d.text);
            cr_expect(eq(u32, o.kept, k == 0 ? 0 : CAP - 1));
        }
    }
}

/* ---- the writer thread */

static char done[16];
static int n_done;

static int note_done(const struct pen_task *t, struct kvf_writer *w)
{
    (void)w;
    done[n_done++] = (char)t->data[0];
    return t->data[0] == '!' ? KVF_E_IO : KVF_OK;
}

static void put(struct pen *p, char name)
{
    struct pen_task *t = pen_task(1, note_done);
    t->data[0] = (unsigned char)name;
    pen_put(p, t);
}

static struct pen *new_pen(void)
{
    struct pen *p = NULL;
    memset(done, 0, sizeof done);
    n_done = 0;
    succeeds(pen_create(NULL, &p, &d));
    return p;
}

Test(pen, what_is_held_waits_and_can_be_forgotten, .timeout = 10)
{
    struct pen *p = new_pen();
    put(p, 'a');
    pen_hold(p);
    put(p, 'b');
    put(p, 'c');
    cr_expect(zero(int, pen_settle(p)));
    cr_expect(eq(str, done, "a"));
    cr_expect(not(pen_idle(p, NULL, NULL)));
    pen_release(p);
    cr_expect(zero(int, pen_settle(p)));
    cr_expect(eq(str, done, "abc"));
    cr_expect(pen_idle(p, NULL, NULL));
    pen_hold(p);
    put(p, 'd');
    pen_discard(p);
    put(p, 'e');
    cr_expect(zero(int, pen_settle(p)));
    pen_hold(p);
    put(p, 'f');
    pen_destroy(p);
    cr_expect(eq(str, done, "abce"));
}

Test(pen, nothing_is_done_after_an_error, .timeout = 10)
{
    OWNED(pen_destroy) struct pen *p = new_pen();
    put(p, 'a');
    put(p, '!');
    put(p, 'b');
    cr_expect(eq(int, pen_settle(p), KVF_E_IO));
    cr_expect(eq(str, done, "a!"));
    cr_expect(eq(int, pen_error(p), KVF_E_IO));
}

static int pass_gate(const struct pen_task *t, struct kvf_writer *w)
{
    (void)t;
    (void)w;
    pass();
    return KVF_OK;
}

/* A task in progress is not finished. */
Test(pen, settles_when_the_last_task_has_ended, .timeout = 10)
{
    OWNED(pen_destroy) struct pen *p = new_pen();
    pthread_t opener;
    set_gate(true, -1);
    pen_put(p, pen_task(0, pass_gate));
    await_call();
    cr_assert(zero(int, pthread_create(&opener, NULL, open_later, NULL)));
    cr_expect(zero(int, pen_settle(p)));
    cr_expect(eq(long, calls_so_far(), 1));
    pthread_join(opener, NULL);
}

/* Memory is bounded: a task that does not fit waits for free space. */
Test(pen, takes_no_more_than_it_may, .timeout = 10)
{
    struct pen *p = new_pen();
    pthread_t opener;
    set_gate(true, -1);
    pen_put(p, pen_task(PEN_BYTES / 2, pass_gate));
    pen_put(p, pen_task(PEN_BYTES / 2, pass_gate));
    cr_expect(zero(long, calls_so_far()));
    cr_assert(zero(int, pthread_create(&opener, NULL, open_later, NULL)));
    pen_put(p, pen_task(1, pass_gate));
    cr_expect(ge(long, calls_so_far(), 1));
    pthread_join(opener, NULL);
    pen_destroy(p);
    cr_expect(eq(long, calls_so_far(), 3));
}
