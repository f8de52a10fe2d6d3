/* fuzz_jsonl.c - any file of prompts, as run and generate read it with --jsonl. A message names the
 * rejected line, or every line has one prompt, numbers in range and a unique name that is safe as a
 * file name. */
#include <string.h>

#include "base/mem.h"
#include "cli/jsonl.h"
#include "cli/signals.h"
#include "fuzz.h"

int signals_caught(void)
{
    return 0;
}

static void check_messages(const char *line)
{
    struct kvf_diag d = {""};
    struct chat_json c;
    MUST(chat_json_open(line, strlen(line), true, &c, &d) == KVF_OK && c.n > 0);
    chat_json_close(&c);
}

static void check_line(const struct jsonl_line *x, const struct jsonl_line *before)
{
    size_t n = strlen(x->id);
    MUST(x->number > (before ? before->number : 0));
    MUST(n >= 1 && n <= JSONL_ID && x->id[0] != '.' && !strchr(x->id, '/'));
    MUST((x->prompt != NULL) + (x->text != NULL) + (x->messages != NULL) == 1);
    MUST(x->n >= -1 && x->seed >= -1);
    if (x->messages)
        check_messages(x->messages);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    char path[64];
    int fd = memory_file(data, n, path);
    struct jsonl b = {.file = path, .quiet = true};
    struct kvf_diag d = {""};
    int err = jsonl_open(&b, &d);
    close(fd);
    MUST(err == KVF_OK || err == KVF_E_NOMEM || strncmp(d.text, path, strlen(path)) == 0);
    for (size_t i = 0; !err && i < b.n_lines; i++) {
        check_line(&b.line[i], i ? &b.line[i - 1] : NULL);
        for (size_t k = 0; k < i && k < 32; k++)
            MUST(strcmp(b.line[i].id, b.line[k].id) != 0);
    }
    MUST(err || b.n_lines > 0);
    jsonl_close(&b);
    jsonl_close(&b);
    return 0;
}
