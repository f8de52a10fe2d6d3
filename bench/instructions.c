/* instructions.c - a QEMU plugin that counts the instructions between two calls of getppid.
 *
 * bench_kernels --count surrounds each kernel with such a pair; see bench/instructions.sh.  The
 * used part of QEMU's plugin interface, version 1, is declared here, because no package has its
 * header. */
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct qemu_plugin_tb;
typedef void (*translated_fn)(uint64_t id, struct qemu_plugin_tb *block);
typedef void (*called_fn)(uint64_t id, unsigned cpu, int64_t number, uint64_t, uint64_t, uint64_t,
                          uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *block);
void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t id, translated_fn fn);
void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb *block, int add, void *to,
                                              uint64_t n);
void qemu_plugin_register_vcpu_syscall_cb(uint64_t id, called_fn fn);
int qemu_plugin_install(uint64_t id, const void *info, int argc, char **argv);
extern int qemu_plugin_version;
int qemu_plugin_version = 1;

static uint64_t count, start;
static bool counting;

static void translated(uint64_t id, struct qemu_plugin_tb *block)
{
    (void)id;
    qemu_plugin_register_vcpu_tb_exec_inline(block, 0, &count, qemu_plugin_tb_n_insns(block));
}

static void called(uint64_t id, unsigned cpu, int64_t number, uint64_t a, uint64_t b, uint64_t c,
                   uint64_t d, uint64_t e, uint64_t f, uint64_t g, uint64_t h)
{
    enum { X86_64 = 110, AARCH64 = 173 };
    (void)id, (void)cpu, (void)a, (void)b, (void)c, (void)d, (void)e, (void)f, (void)g, (void)h;
    if (number != X86_64 && number != AARCH64)
        return;
    if (counting)
        dprintf(1, "%" PRIu64 "\n", count - start);
    counting = !counting;
    start = count;
}

int qemu_plugin_install(uint64_t id, const void *info, int argc, char **argv)
{
    (void)info, (void)argc, (void)argv;
    qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
    qemu_plugin_register_vcpu_syscall_cb(id, called);
    return 0;
}
