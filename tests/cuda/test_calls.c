/* test_calls.c - upper bounds on the work that a decode step asks of the driver and the device. The
 * emulation counts driver calls, updated graph nodes, waits, waits for marks, kernels, copies, the
 * longest chain of dependent nodes, and kernels with higher priority. Times are not known without a
 * device, but these counts must not grow unnoticed. A step must make one call, wait once and wait
 * for two marks. The other bounds are the counts of the program at the time of writing. */
#include "engine/decode/sampler.h"
#include "tests/cuda/outcome.h"
#include "tests/engine/golden.h"

enum { PROMPT = 60, BRIEF = 30, WARM = 8, STEPS = 20, CAP = PROMPT + STEPS, MOST = 4, BUDGET = 24 };

struct counts {
    long calls, told, waits, marks, kernels, copies, chain, first;
};

static struct counts now(void)
{
    return (struct counts){emulation_calls(),
                           emulation_told(),
                           emulation_waits(),
                           emulation_arrivals(),
                           emulation_launches(),
                           emulation_copies(),
                           0,
                           0};
}

static long larger(long a, long b)
{
    return a > b ? a : b;
}

/* Returns the maximum of each count so far and of the counts since `then`. */
static struct counts most_of(const struct counts *most, const struct counts *then)
{
    struct counts x = now();
    return (struct counts){larger(most->calls, x.calls - then->calls),
                           larger(most->told, x.told - then->told),
                           larger(most->waits, x.waits - then->waits),
                           larger(most->marks, x.marks - then->marks),
                           larger(most->kernels, x.kernels - then->kernels),
                           larger(most->copies, x.copies - then->copies),
                           larger(most->chain, emulation_chain()),
                           larger(most->first, emulation_first())};
}

/* Sessions of one method that sample their tokens on the device. */
struct crowd {
    struct engine *e;
    struct gates *gates;
    struct batch *batch;
    struct session *s[MOST];
    struct sampler by[MOST];
    int n;
};

static void gather(struct crowd *x, const char *method)
{
    struct kvf_diag d = {""};
    struct engine_options opt = {.n_threads = 1, .backend = &backend_cuda};
    int32_t ids[PROMPT];
    int prompt = stride(2) == 1 || method_unbudgeted(method) ? PROMPT : BRIEF;
    cr_assert(zero(int, engine_open(tiny_path(0), &opt, &x->e, &d)), "%s", d.text);
    struct choice c = choose(method, method_unbudgeted(method) ? 0 : BUDGET);
    x->gates = method_gates(&c.row) ? open_gates(x->e, "rg") : NULL;
    struct session_options how = {
        .method = &c.row, .params = &c.params, .gates = x->gates, .kv_type = KV_F16, .cap = CAP};
    cr_assert(zero(int, batch_create(x->e, x->n, &x->batch)));
    for (int i = 0; i < PROMPT; i++)
        ids[i] = (i * i + 1) % x->e->config.vocab;
    for (int i = 0; i < x->n; i++) {
        cr_assert(zero(int, session_create(x->e, &how, &x->s[i], &d)), "%s", d.text);
        cr_assert(zero(int, sampler_init(&x->by[i], 0.8, 0.9, 5, x->e->config.vocab)));
        cr_assert(zero(int, session_prompt(x->s[i], ids, prompt - i, NULL, NULL)));
        session_set_sampler(x->s[i], &x->by[i]);
    }
}

static void part(struct crowd *x)
{
    for (int i = 0; i < x->n; i++) {
        session_destroy(x->s[i]);
        sampler_finish(&x->by[i]);
    }
    batch_destroy(x->batch);
    gates_close(x->gates);
    engine_close(x->e);
}

/* Returns the maximum counts of any step of n sessions after the graphs are built. */
static struct counts count(const char *method, int n)
{
    struct crowd x = {.n = n};
    struct counts most = {0};
    int32_t ids[MOST];
    gather(&x, method);
    for (int t = 0; t < STEPS; t++) {
        for (int i = 0; i < n; i++)
            ids[i] = session_next(x.s[i]);
        struct counts then = now();
        cr_assert(zero(int, batch_step(x.batch, x.s, n, ids)));
        if (t >= WARM)
            most = most_of(&most, &then);
    }
    part(&x);
    return most;
}

/* Bounds for one session, and the increase for each further session, for a model of two layers. A
 * further session must not add a driver call, an updated node, a wait or a node in the longest
 * chain. */
Test(calls, of_a_step, .timeout = 240)
{
    static const struct {
        const char *method;
        int chain, kernels, copies, more_kernels, more_copies, aside;
    } row[] = {{"full", 27, 26, 4, 11, 4, 0},   {"window", 32, 30, 8, 15, 8, 0},
               {"trimkv", 32, 33, 8, 15, 8, 3}, {"dbtrimkv", 32, 33, 8, 15, 8, 3},
               {"h2o", 32, 36, 8, 15, 8, 6},    {"snapkv:window=4,every=3", 33, 37, 8, 16, 8, 6}};
    device_needed();
    for (size_t i = 0; EMULATED && i < sizeof row / sizeof *row; i++)
        for (int n = 1; n <= MOST; n += MOST - 1) {
            struct counts x = count(row[i].method, n);
            cr_log_info("%s, %d: %ld calls, %ld told, %ld waits, %ld kernels, %ld first, "
                        "%ld copies, a chain of %ld",
                        row[i].method, n, x.calls, x.told, x.waits, x.kernels, x.first, x.copies,
                        x.chain);
            bool once = x.calls == 1 && x.told == 0 && x.waits == 1 && x.marks == 2
                        && x.chain <= row[i].chain;
            cr_expect(once, "%s, %d: %ld calls, %ld told, %ld waits, %ld marks, a chain of %ld",
                      row[i].method, n, x.calls, x.told, x.waits, x.marks, x.chain);
            cr_expect(le(long, x.kernels, row[i].kernels + (n - 1) * row[i].more_kernels), "%s, %d",
                      row[i].method, n);
            cr_expect(eq(long, x.kernels - x.first, row[i].aside), "%s, %d", row[i].method, n);
            cr_expect(le(long, x.copies, row[i].copies + (n - 1) * row[i].more_copies), "%s, %d",
                      row[i].method, n);
        }
    cr_assert(eq(int, emulation_faults(), 0), "%s", emulation_first_fault());
}
