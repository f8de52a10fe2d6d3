/* test_amx.c - byte matrix multiplications with AMX, which few machines have. On a CPU with
 * AVX-512, tests run the kernel's source with emulated tiles. On a CPU with AMX, they run the
 * instructions. Both must match the reference bit for bit. */
#include <signal.h>
#include <sys/time.h>

#include "amx_emulated.h"
#include "variants.h"

enum { MOST_T = 70, MOST_PANELS = 5, MOST_K = 2048, BLOCKS = MOST_K / QBLOCK, LD = 96 };
enum { CELLS = BLOCKS * MOST_PANELS * PANEL };

/* An operand pair with random bits in every field, except that f16 numbers have an ordinary
 * exponent. */
struct product {
    struct packed w;
    struct qrows x;
    _Alignas(64) uint8_t data[MOST_PANELS * PANEL * MOST_K];
    uint16_t scale[2 * CELLS];
    int8_t fine[4 * CELLS], q[2 * MOST_T * MOST_K];
    float of_block[MOST_T * BLOCKS], sum[MOST_T * BLOCKS], half[2 * MOST_T * BLOCKS];
    int32_t low[2 * MOST_T * BLOCKS];
    float want[MOST_T * LD], got[MOST_T * LD];
};
static struct product p;

/* Returns a random byte in [low, high], sometimes the maximum or minimum. */
static int some_byte(struct rng *r, int low, int high)
{
    switch (rng_below(r, 16)) {
    case 0:
        return low;
    case 1:
        return high;
    default:
        return low + (int)rng_below(r, (uint32_t)(high - low + 1));
    }
}

struct form {
    enum packed_kind kind;
    int n_fine, super, lowest;
};

static void make(struct rng *r, const struct form *f, int K, bool hi_alone)
{
    int super = K % 256 ? 1 : f->super, N = MOST_PANELS * PANEL, blocks = K / QBLOCK;
    p.w = (struct packed){f->kind, N,      K,         MOST_PANELS, blocks,   p.data,
                          p.scale, p.fine, f->n_fine, super,       f->lowest};
    p.x = (struct qrows){.q = p.q, .scale = p.of_block, .K = K, .hi_alone = hi_alone};
    p.x.lowest = f->lowest;
    p.x.sum = p.sum;
    p.x.half = p.half;
    if (qrows_low(&p.x)) {
        p.x.low = p.low;
        p.x.half_low = p.low;
    }
    for (size_t i = 0; i < sizeof p.data; i++)
        p.data[i] = (uint8_t)some_byte(r, 0, 255);
    for (size_t i = 0; i < sizeof p.scale / sizeof *p.scale; i++) {
        unsigned exponent = 6 + rng_below(r, 8);
        p.scale[i] = (uint16_t)(exponent << 10 | rng_below(r, 1024) | rng_below(r, 2) << 15);
    }
    for (size_t i = 0; i < sizeof p.fine; i++)
        p.fine[i] = (int8_t)some_byte(r, -128, 127);
    for (size_t i = 0; i < sizeof p.q; i++)
        p.q[i] = (int8_t)some_byte(r, i / QBLOCK % 2 && !hi_alone ? -128 : -127, 127);
    for (size_t i = 0; i < sizeof p.low / sizeof *p.low; i++)
        p.low[i] = (int32_t)rng_below(r, 1 << 20) - (1 << 19);
    fill_normal(r, p.of_block, MOST_T * BLOCKS, 1e-3);
    fill_normal(r, p.sum, MOST_T * BLOCKS, 1);
    fill_normal(r, p.half, 2 * MOST_T * BLOCKS, 1);
}

/* Checks rows [0, T) of panels [panel, panel + n), and that no other memory is written. */
static void check_part(matmul_q_fn multiply, const char *name, int T, int panel, int n)
{
    memset(p.got, 0xa5, sizeof p.got);
    multiply(p.got, LD, &p.x, T, &p.w, panel, n);
    bool same = true, beside = true;
    for (int t = 0; t < MOST_T; t++)
        for (int i = 0; i < LD; i++) {
            const float *got = p.got + t * LD + i;
            static const uint8_t untouched[4] = {0xa5, 0xa5, 0xa5, 0xa5};
            if (t < T && i >= panel * PANEL && i < (panel + n) * PANEL)
                same = same && memcmp(got, p.want + t * LD + i, 4) == 0;
            else
                beside = beside && memcmp(got, untouched, 4) == 0;
        }
    cr_expect(same, "%s: kind %d, form %d of %d, K %d, rows %d%s, panels %d from %d: other bits",
              name, (int)p.w.kind, p.w.n_fine, p.w.super, p.w.K, T,
              p.x.hi_alone ? " of 8 bits" : "", n, panel);
    cr_expect(beside, "%s wrote outside", name);
}

/* Checks every number of rows with 16 and 8 bits and one of the widths; with KVFATE_TESTS=long all
 * widths. tiles: products of emulated tiles are counted. */
static void check_all(matmul_q_fn multiply, const char *name, bool tiles)
{
    static const int widths[] = {32, 64, 96, 256, 768, 800, 1632, 2048};
    static const struct form forms[] = {
        {PACK_Q4, 0, 1, 0},  {PACK_Q8, 0, 1, -128}, {PACK_Q4, 1, 1, 0},   {PACK_Q8, 1, 8, 0},
        {PACK_Q4, 2, 8, -4}, {PACK_Q8, 2, 1, 0},    {PACK_Q5, 0, 1, -16}, {PACK_Q6, 2, 8, -32}};
    enum { N_WIDTHS = sizeof widths / sizeof *widths, N_FORMS = sizeof forms / sizeof *forms };
    const char *size = getenv("KVFATE_TESTS");
    int step = size && strcmp(size, "long") == 0 ? 1 : N_WIDTHS;
    struct kernels reference;
    struct rng r = rng_seeded(17);
    kernels_init(&reference, 0);
    for (int c = 0; c < 2 * N_FORMS; c++)
        for (int k = 0; k < N_WIDTHS; k++) {
            make(&r, &forms[c / 2], widths[k], c % 2);
            reference.matmul_q(p.want, LD, &p.x, MOST_T, &p.w, 0, MOST_PANELS);
            for (int T = 1 + k % step; T <= MOST_T; T += step) {
                int n = 1 + (int)rng_below(&r, MOST_PANELS);
                int panel = (int)rng_below(&r, (uint32_t)(MOST_PANELS - n + 1));
                check_part(multiply, name, T, panel, n);
                long steps = (long)p.w.n_blocks * (p.w.n_fine == 2 ? 2 : 1);
                if (tiles)
                    cr_expect(eq(long, emulated_products(), T / 16 * n * steps * (2 - c % 2)));
            }
        }
}

Test(amx, emulated_tiles_give_the_bits_of_the_reference)
{
    if (!(cpu_flags_detect() & CPU_X86_AVX512))
        cr_skip_test("the vectors beside the tiles need AVX-512");
    check_all(matmul_q_amx_emulated, "emulated tiles", true);
    const char *wrong = emulated_wrong();
    cr_expect(wrong == NULL, "%s", wrong ? wrong : "");
}

Test(amx, instructions_give_the_bits_of_the_reference)
{
    VARIANTS(v, n);
    for (int i = 0; i < n; i++)
        if (v[i].flags & CPU_X86_AMX)
            check_all(v[i].k.matmul_q, v[i].name, false);
}

static volatile sig_atomic_t interruptions;

static void on_alarm(int signal)
{
    (void)signal;
    interruptions++;
}

/* Signal handling saves and restores the tiles and their shapes. */
Test(amx, instructions_outlast_signals)
{
    enum { T = 64, K = 2048, SIGNALS = 100, MOST_ROUNDS = 1000000 };
    const struct itimerval often = {{0, 2000}, {0, 2000}}, never = {{0, 0}, {0, 0}};
    const struct sigaction act = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    struct variant v[MAX_VARIANTS];
    struct rng r = rng_seeded(19);
    make(&r, &(struct form){PACK_Q8, 2, 1, 0}, K, false);
    for (int i = 0, n = variants(v); i < n; i++) {
        if (i == 0)
            v[0].k.matmul_q(p.want, LD, &p.x, MOST_T, &p.w, 0, MOST_PANELS);
        if (!(v[i].flags & CPU_X86_AMX))
            continue;
        cr_assert(zero(int, sigaction(SIGALRM, &act, NULL)));
        cr_assert(zero(int, setitimer(ITIMER_REAL, &often, NULL)));
        for (int k = 0; interruptions < SIGNALS && k < MOST_ROUNDS; k++)
            check_part(v[i].k.matmul_q, v[i].name, T, 0, MOST_PANELS);
        setitimer(ITIMER_REAL, &never, NULL);
        cr_expect(interruptions >= SIGNALS);
    }
}
