#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cli/cmds.h"
#include "config.h"

#define ANALYSIS(name, text)                                                                       \
    {                                                                                              \
        name, "analyses", "X.kvf [options] [-o OUT.{tsv,csv,json,npz,png,svg,pdf}]", text,         \
            "kvfate " name " run.kvf -o " name ".png", cmd_analyze                                 \
    }

const struct command command_table[] = {
    {"run", "running models", "-m MODEL (-p TEXT | -f FILE | --chat FILE) -o OUT.kvf [options]",
     "run a model under a cache method and record a trace",
     "kvfate run -p 'Why is the sky blue?' --method h2o --budget 64 -o sky.kvf", cmd_run},
    {"generate", "running models", "-m MODEL (-p TEXT | -f FILE | --chat FILE) [options]",
     "the same decoder without a trace: text to stdout",
     "kvfate generate -p 'Name three rivers.' -n 64", cmd_generate},
    {"logits", "running models", "-m MODEL -p TEXT -o OUT.npy [options]",
     "next-token logits of a prompt as a NumPy array",
     "kvfate logits --raw -p 'Once upon a' -o logits.npy", cmd_logits},
    {"eval", "running models", "-m MODEL --data FILE... [options]",
     "quality of cache methods against budget, over documents",
     "kvfate eval --data text.txt --methods h2o,snapkv:window=16 --budgets 64,128 --docs 4 "
     "-o eval.tsv",
     cmd_eval},
    {"effect", "running models", "-m MODEL (-p TEXT | -f FILE | --data FILE...) [options]",
     "what the predictions lose with a head's memory, or with chosen entries",
     "kvfate effect -p 'Why is the sky blue?' --recent 8 --score-tokens 16 -o effect.png",
     cmd_effect},
    {"saliency", "running models", "-m MODEL (-p TEXT | -f FILE | --of X.kvf) [options] [-o OUT]",
     "which entries help the predictions of a text, and which harm",
     "kvfate saliency -p 'Why is the sky blue?' -o saliency.png", cmd_saliency},
    {"train", "running models", "-m MODEL --data FILE... -o GATES.safetensors [options]",
     "train gates for a model whose weights stay as they are",
     "kvfate train --data text.txt --method trimkv:lr=1e-3 --length 64 --steps 2 "
     "--check-every 0 -o gates.safetensors",
     cmd_train},
    {"curves", "running models", "LOG.jsonl... [-o OUT.{tsv,json,csv,npz,png,svg,pdf}] [options]",
     "the course of trainings: losses and what checks found",
     "kvfate curves gates.safetensors.log.jsonl -o curves.png", cmd_curves},
    {"methods", "running models", "[NAME[:key=value,...]] [-B N] [--json]",
     "list the cache methods and their parts", "kvfate methods snapkv -B 128", cmd_methods},
    {"needle", "running models", "(--tokens N | --words N) -o NAME [options]",
     "prompts in which numbers are hidden, and where",
     "kvfate needle --tokens 512 --keys 4 --depth 0.5 -o hay", cmd_needle},
    {"info", "traces", "FILE [--json]", "show what a trace, or a file of gates, holds",
     "kvfate info run.kvf", cmd_info},
    {"verify", "traces", "X.kvf [--full]", "check every record of a trace",
     "kvfate verify --full run.kvf", cmd_verify},
    {"plan", "traces", "X.kvf -o P.kvf [options]",
     "a plan: the tokens and evictions of a run, for another to repeat",
     "kvfate plan run.kvf -o plan.kvf", cmd_plan},
    {"part", "traces", "A.kvf B.kvf [options] [-o OUT.{tsv,csv,json,npz}]",
     "the first step at which two runs part", "kvfate part full.kvf h2o.kvf", cmd_part},
    {"diff", "traces", "A.kvf B.kvf [options] [-o OUT.{tsv,csv,json,npz}]",
     "what differs between two traces, column by column", "kvfate diff a.kvf b.kvf", cmd_diff},
    ANALYSIS("eviction", "when each entry was evicted, and why"),
    ANALYSIS("retention", "what gates say tokens are worth, or how long they were used"),
    ANALYSIS("sparsity", "share of the attention triangle that was not kept or not used"),
    ANALYSIS("survival", "share of tokens still selected at a horizon"),
    {"hazard", "analyses", "X.kvf [options] [-o OUT.{tsv,csv,json,npz,png,svg,pdf}]",
     "risk that a selection at an age is the token's last",
     "kvfate hazard run.kvf --criterion top64", cmd_analyze},
    {"persistence", "analyses", "X.kvf [options] [-o OUT.{tsv,csv,json,npz,png,svg,pdf}]",
     "how often tokens are selected at ages 1, 2, 4, ..., with shrinkage",
     "kvfate persistence run.kvf -o persistence.png", cmd_analyze},
    {"intermittency", "analyses", "X.kvf [options] [-o OUT.{tsv,csv,json,npz,png,svg,pdf}]",
     "how attention to tokens comes and goes: returns, gaps, first exits",
     "kvfate intermittency run.kvf -o intermittency.png", cmd_analyze},
    ANALYSIS("occupancy", "entries held by each head over time"),
    {"tokens", "analyses", "X.kvf [Y.kvf ...] [options] [-o OUT.{tsv,csv,json,npz,png,svg,pdf}]",
     "tokens with how long they were kept", "kvfate tokens run.kvf -o tokens.png", cmd_analyze},
    ANALYSIS("calibration", "retention of gates against what became of the tokens"),
    {"regret", "analyses", "X.kvf [options] [-o OUT.{tsv,csv,json,npz,png,svg,pdf}]",
     "attention mass given away against the best entries of that number",
     "kvfate regret run.kvf -o regret.png", cmd_analyze},
    {"dilution", "analyses", "X.kvf... [options] [-o OUT.{tsv,csv,json,npz,png,svg,pdf}]",
     "attention that goes to entries which are of no use",
     "kvfate dilution run.kvf --useful topk:64 --mean -o dilution.tsv", cmd_analyze},
    {"ghosts", "analyses", "X.kvf [options] [-o OUT.{tsv,csv,json,npz,png,svg,pdf}]",
     "evicted entries that later queries would have used", "kvfate ghosts run.kvf -o ghosts.png",
     cmd_analyze},
    {"agreement", "analyses", "A.kvf B.kvf... [options] [-o OUT.{tsv,csv,json,npz,png,svg,pdf}]",
     "whether different gates say the same of the same tokens",
     "kvfate agreement seed1.kvf seed2.kvf -o agreement.tsv", cmd_analyze},
    {"kv-size", "analyses", "X.kvf... [options] [-o OUT.{tsv,csv,json,npz,png,svg,pdf}]",
     "how large the cache of each head is", "kvfate kv-size run.kvf -o sizes.tsv", cmd_analyze},
    {"density", "analyses", "X.kvf... [options] [-o OUT.{tsv,csv,json,npz,png,svg,pdf}]",
     "where in the text the entries lie that are held", "kvfate density run.kvf -o density.png",
     cmd_analyze},
    {"runs", "analyses", "X.kvf [options] [-o OUT.{tsv,csv,json,npz}]",
     "whether what is held lies in blocks or scattered", "kvfate runs run.kvf -o runs.tsv",
     cmd_analyze},
    {"heads", "analyses", "X.kvf [options] [-o OUT.{tsv,csv,json,npz,png,svg,pdf}]",
     "what kind of head each is, by rules, and the evidence", "kvfate heads run.kvf -o heads.tsv",
     cmd_analyze},
    {"compare", "analyses", "A.kvf B.kvf... [options] [-o OUT.{tsv,csv,json,npz}]",
     "how far apart heads of several runs are, and which is which",
     "kvfate compare a.kvf b.kvf --match -o match.tsv", cmd_analyze},
    {"atlas", "analyses", "X.kvf... [options] [-o OUT.{tsv,csv,json,npz}]",
     "clusters of heads over many texts, and how stable they are",
     "kvfate atlas text1.kvf text2.kvf -o atlas.tsv", cmd_analyze},
    {"words", "analyses", "X.kvf [options] [-o OUT.{tsv,csv,json,npz}]",
     "words that caches hold, against those of the text", "kvfate words run.kvf -o words.tsv",
     cmd_analyze},
    {"received", "analyses", "X.kvf [options] [-o OUT.{tsv,csv,json,npz,png,svg,pdf}]",
     "attention that tokens receive from later queries",
     "kvfate received run.kvf --spread heads -o received.tsv", cmd_analyze},
    {"dynamics", "analyses", "X.kvf... [options] [-o OUT.{tsv,csv,json,npz}]",
     "whether the queries of a head come from a stable process",
     "kvfate dynamics a.kvf b.kvf -o dynamics.tsv", cmd_analyze},
    ANALYSIS("variance", "what the numbers of gates follow: heads, tokens, positions or keys"),
    {"overlap", "analyses", "X.kvf [options] [-o OUT.{tsv,csv,json,npz,png,svg,pdf}]",
     "whether observation windows agree about the tokens that matter",
     "kvfate overlap run.kvf -o overlap.png", cmd_analyze},
    {"attention-sparsity", "analyses", "X.kvf [options] [-o OUT.{tsv,csv,json,npz,png,svg,pdf}]",
     "share of tokens with less than p times the largest score",
     "kvfate attention-sparsity run.kvf -o sparsity.png", cmd_analyze},
    {"predict", "analyses", "EFFECT.{tsv,json} X.kvf... [tables] [options] [-o OUT]",
     "whether statistics of a trace tell which memory matters",
     "kvfate predict effect.tsv run.kvf saliency.kvf -o predict.tsv", cmd_predict},
    {"corpus", "analyses", "ANALYSIS X.kvf|FOLDER|@LIST... [options] [-o OUT]",
     "an analysis of many traces, added up over documents, with intervals",
     "kvfate corpus survival run.kvf --criterion top64 -o survival.tsv", cmd_corpus},
    {"merge", "analyses", "A.state B.state... [options] [-o OUT]",
     "add up the states of shards of a corpus", "kvfate merge one.state two.state -o survival.tsv",
     cmd_merge},
    {"claims", "analyses", "RESULTS_FOLDER [options]",
     "what tables say of the claims of the papers", "kvfate claims results", cmd_claims},
    {"draw", "analyses", "TABLE -o OUT.{png,svg,pdf} [options]",
     "figures of tables that were written before, and of their differences",
     "kvfate draw h2o.tsv --minus full.tsv -o difference.pdf", cmd_draw},
    {"report", "analyses", "X.kvf [Y.kvf ...] -o FILE.html [options]",
     "one interactive page of what traces hold, to be opened in a browser",
     "kvfate report run.kvf -o report.html", cmd_report},
    {"figures", "analyses", "[--json]", "list the figures", "kvfate figures", cmd_figures},
    {NULL, NULL, NULL, NULL, NULL, NULL},
};

static int overview(FILE *out, int status)
{
    const char *group = "";
    fprintf(out, "usage: kvfate COMMAND [options]\n");
    for (const struct command *c = command_table; c->name; c++) {
        if (strcmp(group, c->group) != 0)
            fprintf(out, "\n%s:\n", group = c->group);
        fprintf(out, "  %-10s %s\n", c->name, c->summary);
    }
    fprintf(out, "\n'kvfate COMMAND -h' explains one; 'kvfate --version' names this release.\n");
    return status;
}

static const struct command *find(const char *name)
{
    for (const struct command *c = command_table; c->name; c++)
        if (strcmp(c->name, name) == 0)
            return c;
    return NULL;
}

bool command_options(const struct command *self, const struct opt *list, void *base, int argc,
                     char **argv, int min_operands, int max_operands, int *operands, int *status)
{
    struct kvf_diag d = {""};
    bool help;
    int err = opt_defaults(list, base, &d);
    if (!err)
        err = opt_parse(list, base, argc, argv, operands, &help, &d);
    if (err) {
        fprintf(stderr, "kvfate %s: %s\n", self->name, d.text);
        *status = EXIT_USAGE;
        return false;
    }
    if (help) {
        printf("usage: kvfate %s %s\n\n%s.\n\n", self->name, self->args, self->summary);
        opt_print(list, stdout);
        printf("\nexample:\n  %s\n", self->example);
        *status = EXIT_OK;
        return false;
    }
    if (*operands < min_operands || (max_operands >= 0 && *operands > max_operands)) {
        fprintf(stderr, "kvfate %s: %s; usage: kvfate %s %s\n", self->name,
                *operands < min_operands ? "a file is missing" : "too many operands", self->name,
                self->args);
        *status = EXIT_USAGE;
        return false;
    }
    return true;
}

static int unknown(const char *name)
{
    const char *near = NULL;
    for (const struct command *c = command_table; c->name && !near; c++)
        if (strncmp(c->name, name, 3) == 0)
            near = c->name;
    fprintf(stderr, "kvfate: no command '%s'%s%s%s; 'kvfate help' lists them\n", name,
            near ? " (did you mean '" : "", near ? near : "", near ? "'?)" : "");
    return EXIT_USAGE;
}

int commands_main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "";
    int status;
    if (argc < 2) {
        status = overview(stderr, EXIT_USAGE);
    } else if (strcmp(name, "--version") == 0) {
        printf("kvfate %s\n", KVFATE_VERSION);
        status = EXIT_OK;
    } else if (strcmp(name, "help") == 0 && argc > 2 && find(argv[2])) {
        char *help[] = {argv[2], "-h", NULL};
        status = find(argv[2])->run(find(argv[2]), 2, help);
    } else if (strcmp(name, "help") == 0 || strcmp(name, "--help") == 0
               || strcmp(name, "-h") == 0) {
        status = overview(stdout, EXIT_OK);
    } else if (find(name)) {
        status = find(name)->run(find(name), argc - 1, argv + 1);
    } else {
        status = unknown(name);
    }
    if ((fflush(stdout) != 0 || ferror(stdout)) && status == EXIT_OK) {
        fprintf(stderr, "kvfate: standard output: %s\n", strerror(errno));
        status = EXIT_FAILED;
    }
    return status;
}
