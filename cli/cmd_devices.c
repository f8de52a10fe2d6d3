/* cmd_devices.c - `kvfate list devices` lists the CPU and the CUDA devices of this machine. */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/os.h"
#include "cli/commands.h"
#include "engine/device/devices.h"

static double mb(size_t bytes)
{
    return (double)bytes / 1e6;
}

static void print_all(const struct devices *all)
{
    printf("cpu     %d threads\n", os_processors());
    for (int i = 0; i < all->n; i++) {
        struct device_facts f;
        struct kvf_diag why = {""};
        int err = devices_look(i, &f, &why);
        printf("cuda:%-2d %s, compute capability %d.%d, %.0f MB, %.0f MB free\n", i, f.name,
               f.major, f.minor, mb(f.memory), mb(f.free));
        if (err)
            printf("        cannot be used: %s\n", why.text);
    }
    if (all->n == 0)
        printf("cuda    none: %s\n", all->why.text);
    if (all->driver)
        printf("driver  knows CUDA %d.%d\n", all->driver / 1000, all->driver % 1000 / 10);
    if (all->backend)
        printf("kernels built with CUDA %d.%d\n", all->built / 1000, all->built % 1000 / 10);
}

static void put_version(struct buf *b, const char *key, int v)
{
    json_put_key(b, key);
    if (v)
        buf_printf(b, "\"%d.%d\"", v / 1000, v % 1000 / 10);
    else
        buf_str(b, "null");
}

static void put_why(struct buf *b, bool is, const char *why)
{
    json_put_key(b, "why_not");
    if (is)
        json_put_str(b, why, strlen(why));
    else
        buf_str(b, "null");
}

static void put_all(struct buf *b, const struct devices *all)
{
    buf_char(b, '{');
    json_put_member_num(b, "threads", os_processors());
    put_version(b, "driver", all->driver);
    put_version(b, "built", all->built);
    put_why(b, all->n == 0, all->why.text);
    json_put_key(b, "devices");
    buf_char(b, '[');
    for (int i = 0; i < all->n; i++) {
        struct device_facts f;
        struct kvf_diag why = {""};
        int err = devices_look(i, &f, &why);
        buf_str(b, i ? ",{" : "{");
        json_put_member_str(b, "name", f.name);
        json_put_key(b, "compute_capability");
        buf_printf(b, "\"%d.%d\"", f.major, f.minor);
        json_put_member_num(b, "memory", (double)f.memory);
        json_put_member_num(b, "free", (double)f.free);
        put_why(b, err, why.text);
        buf_char(b, '}');
    }
    buf_str(b, "]}\n");
}

struct request {
    bool json;
};

static const struct opt options[] = {
    {OPT_FLAG, 0, "json", offsetof(struct request, json), NULL, "JSON: an object"},
    {.type = OPT_END},
};

static int cmd_devices(const struct command *self, void *request, int n, char **operand)
{
    const struct request *q = request;
    struct kvf_diag d = {""};
    struct devices all;
    struct buf b = {0};
    (void)n;
    (void)operand;
    devices_find(&all);
    if (q->json)
        put_all(&b, &all);
    else
        print_all(&all);
    const int err = b.err;
    if (!err && b.len)
        fwrite(b.data, 1, b.len, stdout);
    buf_finish(&b);
    return command_end(self, err, &d);
}

const struct command command_devices = {
    .name = "devices",
    .group = "running",
    .summary = "list compute devices, and why a device cannot be used",
    .example = "kvfate list devices",
    .options = options,
    .request_bytes = sizeof(struct request),
    .run = cmd_devices,
};
