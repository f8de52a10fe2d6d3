#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "cli/cmds.h"
#include "engine/method/method.h"

static void put(struct buf *b, const char *key, const char *value)
{
    json_put_key(b, key);
    json_put_str(b, value, strlen(value));
}

static int print_json(void)
{
    struct buf b = {0};
    buf_char(&b, '[');
    for (const struct method *m = method_presets; m->name; m++) {
        if (m != method_presets)
            buf_char(&b, ',');
        buf_char(&b, '{');
        put(&b, "name", m->name);
        put(&b, "admission", m->admission->name);
        put(&b, "score", m->score ? m->score->name : "none");
        put(&b, "allocation", m->allocation->name);
        put(&b, "trigger", m->trigger->name);
        put(&b, "selection", m->read->name);
        put(&b, "summary", m->summary);
        put(&b, "source", m->source);
        buf_char(&b, '}');
    }
    buf_str(&b, "]\n");
    int err = b.err;
    if (!err)
        fwrite(b.data, 1, b.len, stdout);
    buf_finish(&b);
    return err ? EXIT_FAILED : EXIT_OK;
}

int cmd_methods(const struct command *self, int argc, char **argv)
{
    bool json = false;
    int operands, status;
    const struct opt list[] = {
        {OPT_FLAG, 0, "json", &json, NULL, "a JSON array", 0, 0},
        {.type = OPT_END},
    };
    if (!command_options(self, list, argc, argv, 0, 0, &operands, &status))
        return status;
    if (json)
        return print_json();
    printf("%-13s %-9s %-18s %-16s %-8s %-4s %s\n", "name", "admission", "score", "allocation",
           "trigger", "read", "summary");
    for (const struct method *m = method_presets; m->name; m++)
        printf("%-13s %-9s %-18s %-16s %-8s %-4s %s (%s)\n", m->name, m->admission->name,
               m->score ? m->score->name : "none", m->allocation->name, m->trigger->name,
               m->read->name, m->summary, m->source);
    return EXIT_OK;
}
