/* sets.c - parses sets of probes on the command line. */
#include <stdio.h>
#include <string.h>

#include "base/headset.h"
#include "base/opt.h"
#include "engine/probe/recorder.h"

static int unknown_probe(const char *name, struct kvf_diag *d)
{
    char list[256] = "";
    size_t n = 0;
    for (int i = 0; probe_table[i] && n < sizeof list - 32; i++)
        if (!probe_table[i]->shadow)
            n += (size_t)snprintf(list + n, sizeof list - n, "%s%s", n ? ", " : "",
                                  probe_table[i]->name);
    return kvf_fail(d, KVF_E_ARG,
                    "--probes: no probe '%s'; use auto, lean, paper, full or a list of %s", name,
                    list);
}

/* Returns the probes of a word of --probes: a set, or a probe by name. 0: unknown word. */
static unsigned probes_of(const char *word)
{
    unsigned set = 0;
    for (int i = 0; probe_table[i]; i++) {
        const struct probe *p = probe_table[i];
        bool in_full = !p->by_name && strcmp(word, "full") == 0;
        bool in_paper = !p->by_name && !p->full_only && strcmp(word, "paper") == 0;
        bool in_lean = p->lean && strcmp(word, "lean") == 0;
        bool in_auto = !p->by_name && !p->full_only && strcmp(word, PROBES_AUTO) == 0;
        bool named = strcmp(word, p->name) == 0;
        if (!p->shadow && (in_full || in_paper || in_lean || in_auto || named))
            set |= 1u << i;
    }
    return set;
}

int probes_word(const char **text, char *word, bool *in_raw)
{
    static const char raw[] = "raw:";
    struct headset_item item;
    char value[PROBE_WORD];
    int more = opt_pair(text, word, value, PROBE_WORD);
    if (more != 1 || value[0])
        return more == 1 ? -1 : more;
    if (strncmp(word, raw, sizeof raw - 1) == 0) {
        memmove(word, word + sizeof raw - 1, strlen(word) - (sizeof raw - 1) + 1);
        *in_raw = true;
        return 1;
    }
    const char *at = word;
    *in_raw = *in_raw && headset_next(&at, &item);
    return 1;
}

int probes_parse(const char *text, unsigned *ret_set, struct kvf_diag *d)
{
    char word[PROBE_WORD];
    unsigned set = 0;
    bool in_raw = false;
    int more = probes_word(&text, word, &in_raw);
    for (; more == 1; more = probes_word(&text, word, &in_raw)) {
        unsigned found = probes_of(in_raw ? "raw" : word);
        if (!found)
            return unknown_probe(word, d);
        set |= found;
    }
    if (more < 0)
        return kvf_fail(d, KVF_E_ARG, "--probes: write names separated by commas");
    *ret_set = set;
    return KVF_OK;
}

bool probes_are_auto(const char *text)
{
    char word[PROBE_WORD];
    bool found = false, in_raw = false;
    while (probes_word(&text, word, &in_raw) == 1)
        found |= !in_raw && strcmp(word, PROBES_AUTO) == 0;
    return found;
}

unsigned probes_auto(bool on_device, bool shadows)
{
    unsigned set = 0;
    for (int i = 0; probe_table[i]; i++) {
        const struct probe *p = probe_table[i];
        bool fits = p->in_auto == AUTO_ALL || (p->in_auto == AUTO_CPU && !on_device);
        if (fits && (!(p->wants & PROBE_SHADOW_ENTRIES) || shadows))
            set |= 1u << i;
    }
    return set;
}

int shadows_parse(const char *text, unsigned *ret_set, struct kvf_diag *d)
{
    char key[32], value[32];
    unsigned set = 0;
    int more = opt_pair(&text, key, value, sizeof key);
    for (; more == 1; more = opt_pair(&text, key, value, sizeof key)) {
        unsigned bit = 0;
        for (int i = 0; probe_table[i]; i++)
            if (probe_table[i]->shadow && strcmp(key, probe_table[i]->shadow) == 0)
                bit = 1u << i;
        if (!bit || value[0])
            return kvf_fail(d, KVF_E_ARG, "--shadow: no shadow '%s'; use entries, model or both",
                            key);
        set |= bit;
    }
    if (more < 0 || !set)
        return kvf_fail(d, KVF_E_ARG, "--shadow: use entries, model or both, with a comma");
    *ret_set = set;
    return KVF_OK;
}

void shadows_names(unsigned set, char *ret_text, size_t cap)
{
    size_t n = 0;
    ret_text[0] = 0;
    for (int i = 0; probe_table[i] && n < cap; i++)
        if (probe_table[i]->shadow && set >> i & 1)
            n += (size_t)snprintf(ret_text + n, cap - n, "%s%s", n ? "," : "",
                                  probe_table[i]->shadow);
}

unsigned probes_want(unsigned set)
{
    unsigned wants = 0;
    for (int i = 0; probe_table[i]; i++)
        wants |= set >> i & 1 ? probe_table[i]->wants : 0;
    return wants;
}
