/* test_safetensors_write.c - written files are read back by the strict reader and by one in Python;
 * a failed write keeps the old file. */
#include <signal.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "tests/folder.h"
#include "base/buf.h"
#include "engine/gate/tensor_file.h"
#include "engine/gate/safetensors_write.h"
#include "beside.h"

TestSuite(safetensors_write, .init = make_folder, .fini = remove_folder);

static bool gone(const char *name)
{
    return access(at(name), F_OK) != 0;
}

static void slurp(const char *path, struct buf *out)
{
    size_t n;
    OWNED(mem_free) char *all = read_whole(path, &n);
    buf_clear(out);
    buf_add(out, all, n);
}

static const float values[] = {1, -2.5f, 0, 1e-40f, 3.4028235e38f, 0.1f};
static const struct safetensors_item items[] = {
    {"b.weight", 2, {2, 3}, values, WEIGHT_F32},
    {"a", 1, {6}, values, WEIGHT_BF16},
    {"scalar", 0, {0}, values, WEIGHT_F32},
    {"four \"d\"", 4, {1, 2, 1, 3}, values, WEIGHT_F32},
};
static const struct safetensors_note notes[] = {
    {"layout", "rg"}, {"quote", "a \"b\" \\ \n\t\x01 \xc3\xa9"}, {"", ""}};

static int write_all(const char *path, struct kvf_diag *d)
{
    return safetensors_write(path, items, 4, notes, 3, d);
}

Test(safetensors_write, strict_reader_gives_it_back)
{
    struct tensor_file *f;
    succeeds(write_all(at("x"), &d));
    succeeds(tensor_file_open(at("x"), &f, &d));
    cr_assert(eq(sz, f->n, 4));
    for (int i = 0; i < 4; i++) {
        const struct tensor *t = tensor_file_find(f, items[i].name, NULL);
        cr_assert(t != NULL);
        cr_expect(t->n_dims == items[i].n_dims && t->type == items[i].type);
        for (int k = 0; k < t->n_dims; k++)
            cr_expect(eq(u64, t->dim[k], items[i].dim[k]));
        if (t->type == WEIGHT_F32)
            cr_expect(zero(int, memcmp(t->data, values, t->n * 4)));
    }
    for (int i = 0; i < 3; i++)
        cr_expect(zero(int, strcmp(tensor_file_meta(f, notes[i].key), notes[i].value)));
    cr_expect(zero(int, strcmp(tensor_file_meta_key(f, 3), SAFETENSORS_CHECKSUM)));
    cr_expect(tensor_file_meta_key(f, 4) == NULL);
    tensor_file_close(f);
    cr_expect(alone_in(folder, "x"));
}

/* An independent Python reader decodes the file: bits computed by hand, bf16 of 0.1 is 3dcd and of
 * FLT_MAX inf. */
Test(safetensors_write, python_reads_the_same)
{
    static const char expect[] =
        "meta \"layout\" \"rg\"\n"
        "meta \"quote\" \"a \\\"b\\\" \\\\ \\n\\t\\u0001 \\u00e9\"\n"
        "meta \"\" \"\"\n"
        "meta \"kvfate.checksum\" \"@\"\n"
        "b.weight F32 [2, 3] 3f800000 c0200000 00000000 000116c2 7f7fffff 3dcccccd\n"
        "a BF16 [6] 3f800000 c0200000 00000000 00010000 7f800000 3dcd0000\n"
        "scalar F32 [] 3f800000\n"
        "four \"d\" F32 [1, 2, 1, 3] 3f800000 c0200000 00000000 000116c2 7f7fffff 3dcccccd\n";
    char command[512], got[4096] = "";
    succeeds(write_all(at("x"), &d));
    snprintf(command, sizeof command, "/usr/bin/python3 '%s' %s", getenv("KVF_READER"), at("x"));
    FILE *f = popen(command, "r");
    cr_assert(f != NULL);
    got[fread(got, 1, sizeof got - 1, f)] = 0;
    cr_expect(zero(int, pclose(f)));
    cr_expect(zero(int, strcmp(got, expect)), "%s", got);
}

/* Every flipped bit gives an error. */
Test(safetensors_write, every_flipped_bit_is_noticed)
{
    SCOPED(buf_finish) struct buf b = {0};
    struct kvf_diag d = {""};
    cr_assert(zero(int, write_all(at("x"), &d)), "%s", d.text);
    slurp(at("x"), &b);
    const char *own = strstr(b.data + 8, SAFETENSORS_CHECKSUM);
    for (size_t bit = 0; own && bit < 8 * b.len; bit++) {
        struct safetensors got = {.n = 0};
        unsigned char *p = (unsigned char *)b.data + bit / 8;
        bool key = (char *)p >= own && (char *)p < own + strlen(SAFETENSORS_CHECKSUM);
        *p ^= (unsigned char)(1u << bit % 8);
        int err = safetensors_read("x", (unsigned char *)b.data, b.len, &got, &d);
        cr_expect(err != KVF_OK || key, "bit %zu", bit); /* plain metadata under another key */
        if (!err)
            safetensors_finish(&got);
        *p ^= (unsigned char)(1u << bit % 8);
    }
    cr_expect(own != NULL);
}

Test(safetensors_write, equal_input_gives_equal_bytes_in_aligned_files)
{
    SCOPED(buf_finish) struct buf a = {0}, b = {0};
    struct kvf_diag d = {""};
    cr_assert(zero(int, write_all(at("x"), &d) | write_all(at("y"), &d)));
    slurp(at("x"), &a);
    slurp(at("y"), &b);
    cr_expect(a.len == b.len && memcmp(a.data, b.data, a.len) == 0);
    for (int n = 0; n < 20; n++) { /* headers of every length */
        char text[32];
        struct safetensors_note note = {"k", memset(text, 'x', sizeof text)};
        text[n] = 0;
        cr_assert(zero(int, safetensors_write(at("x"), items, 1, &note, 1, &d)));
        slurp(at("x"), &a);
        cr_expect(a.data[0] % 8 == 0 && a.data[8] == '{');
    }
    cr_assert(zero(int, safetensors_write(at("x"), NULL, 0, NULL, 0, &d)));
    slurp(at("x"), &a);
    cr_expect(a.len == 16 && memcmp(a.data + 8, "{}      ", 8) == 0);
}

/* Each f32 becomes the nearer of its two neighbours in bf16; ties go to the even one. */
Test(safetensors_write, bf16_is_the_nearest)
{
    enum { N = 1 << 16 };
    float *x = MEM_NEW(float, N);
    OWNED(tensor_file_close) struct tensor_file *f = NULL;
    for (uint32_t i = 0; i < N; i++) { /* each upper half once, with lower halves of all kinds */
        static const uint16_t low[] = {0, 1, 0x7fff, 0x8000, 0x8001, 0xffff, 0xabcd};
        uint32_t u = i << 16 | low[i % 7];
        memcpy(&x[i], &u, 4);
    }
    struct safetensors_item item = {"x", 1, {N}, x, WEIGHT_BF16};
    succeeds(safetensors_write(at("x"), &item, 1, NULL, 0, &d));
    succeeds(tensor_file_open(at("x"), &f, &d));
    const uint16_t *y = f->tensor[0].data;
    for (uint32_t i = 0; i < N; i++) {
        float down, up, got;
        uint32_t bits = (uint32_t)y[i] << 16, lower = i << 16, upper = (i + 1) << 16;
        memcpy(&got, &bits, 4);
        memcpy(&down, &lower, 4);
        memcpy(&up, &upper, 4);
        if (isnan(x[i]) || !isfinite(down)) {
            cr_assert(isnan(x[i]) ? isnan(got) : got == x[i], "%x", i);
            continue;
        }
        double to_up = isinf(up) ? 0x1p128 : fabs((double)up); /* beyond the largest */
        double left = fabs((double)x[i]) - fabs((double)down), right = to_up - fabs((double)x[i]);
        uint32_t expect = left < right ? i : left > right ? i + 1 : i + (i & 1);
        cr_assert(eq(int, y[i], (int)(uint16_t)expect), "%x", i);
    }
    mem_free(x);
}

static void one_sentence(const struct kvf_diag *d)
{
    cr_expect(strncmp(d->text, folder, strlen(folder)) == 0, "%s", d->text);
    cr_expect(strlen(d->text) > strlen(folder) + 12 && !strchr(d->text, '\n'), "%s", d->text);
}

/* Checks that the old file is unchanged and the folder has no other file of the writer. */
static void unchanged(const struct buf *old)
{
    SCOPED(buf_finish) struct buf now = {0};
    slurp(at("x"), &now);
    cr_expect(now.len == old->len && memcmp(now.data, old->data, now.len) == 0);
    cr_expect(alone_in(folder, "x"));
}

Test(safetensors_write, a_full_disk_leaves_the_old_file)
{
    SCOPED(buf_finish) struct buf old = {0};
    struct kvf_diag d = {""};
    struct rlimit was;
    cr_assert(zero(int, safetensors_write(at("x"), items, 1, NULL, 0, &d)));
    slurp(at("x"), &old);
    cr_assert(zero(int, write_all(at("y"), &d)));
    struct stat st;
    stat(at("y"), &st);
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &was);
    for (off_t size = 0; size <= st.st_size; size++) {
        struct rlimit now = {(rlim_t)size, was.rlim_max};
        d.text[0] = 0;
        setrlimit(RLIMIT_FSIZE, &now);
        int err = write_all(at("x"), &d);
        setrlimit(RLIMIT_FSIZE, &was);
        cr_assert(eq(int, err, size < st.st_size ? KVF_E_IO : KVF_OK), "%lld", (long long)size);
        if (err) {
            one_sentence(&d);
            unchanged(&old);
        }
    }
}

Test(safetensors_write, places_that_cannot_be_written)
{
    struct kvf_diag d = {""};
    struct stat st;
    cr_expect(eq(int, write_all(at("none/x"), &d), KVF_E_IO));
    one_sentence(&d);
    cr_assert(zero(int, mkdir(at("folder"), 0777)));
    cr_expect(eq(int, write_all(at("folder"), &d), KVF_E_IO)); /* the rename fails */
    one_sentence(&d);
    cr_expect(stat(at("folder"), &st) == 0 && S_ISDIR(st.st_mode));
    cr_expect(alone_in(folder, "folder"));
    cr_assert(zero(int, mkdir(at(".y.lock"), 0777)));
    cr_expect(eq(int, write_all(at("y"), &d), KVF_E_IO));
    one_sentence(&d);
}

Test(safetensors_write, what_another_process_writes_is_left_to_it)
{
    SCOPED(buf_finish) struct buf old = {0};
    struct kvf_diag d = {""};
    cr_assert(zero(int, write_all(at("x"), &d)));
    slurp(at("x"), &old);
    int fd = open(at(".x.lock"), O_RDWR | O_CREAT, 0666);
    cr_assert(zero(int, flock(fd, LOCK_EX)));
    cr_expect(eq(int, write_all(at("x"), &d), KVF_E_IO));
    cr_expect(strstr(d.text, "another process") != NULL, "%s", d.text);
    cr_expect(gone(".x.lock") == 0);
    close(fd);
    cr_expect(zero(int, write_all(at("x"), &d)));
    unchanged(&old);
}

Test(safetensors_write, what_the_reader_would_refuse_is_not_written)
{
    static const struct safetensors_item bad[] = {{"a", 1, {0}, values, WEIGHT_F32},
                                                  {"a", 5, {1}, values, WEIGHT_F32},
                                                  {"a", -1, {1}, values, WEIGHT_F32},
                                                  {"a", 1, {1}, values, WEIGHT_Q8_0},
                                                  {"a", 2, {UINT64_MAX, 2}, values, WEIGHT_F32}};
    static const struct safetensors_item odd[] = {{"a", 1, {1}, values, WEIGHT_BF16},
                                                  {"b", 1, {1}, values, WEIGHT_F32}};
    struct kvf_diag d = {""};
    for (int i = 0; i < 5; i++) {
        cr_expect(eq(int, safetensors_write(at("x"), &bad[i], 1, NULL, 0, &d), KVF_E_ARG));
        one_sentence(&d);
    }
    cr_expect(eq(int, safetensors_write(at("x"), odd, 2, NULL, 0, &d), KVF_E_ARG));
    char *huge = memset(MEM_NEW(char, (17 << 20) + 1), 'x', 17 << 20);
    struct safetensors_note note = {"k", huge};
    cr_expect(eq(int, safetensors_write(at("x"), items, 1, &note, 1, &d), KVF_E_LIMIT));
    one_sentence(&d);
    mem_free(huge);
    cr_expect(gone("x") && alone_in(folder, "x"));
}
