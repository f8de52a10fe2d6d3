/* cmd_quiz.c - `kvfate tasks quiz` writes short questions with known answers as JSONL.
 *
 * With --question unknown, a line has the members of a line of `kvfate tasks`: the context and the
 * question are separate, and the answer and its scorer are in "task". */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/replace.h"
#include "cli/commands.h"
#include "cli/runner.h"
#include "engine/experiment/quiz.h"

static const char *const part_words[] = {"train", "test", NULL};

struct request {
    const char *out;
    int kind, part; /* indices into the words of --kind and part_words */
    int question;   /* enum question_time */
    int64_t level, count, seed;
};

static void put_text(struct buf *line, const char *key, const struct buf *text)
{
    json_put_key(line, key);
    json_put_str(line, text->data ? text->data : "", text->len);
}

/* Appends the members of a line. The first `end` bytes of the question are the facts. */
static void put_apart(const struct quiz *q, uint64_t i, const struct buf *question, size_t end,
                      const struct buf *value, struct buf *out)
{
    enum { ANSWER_TOKENS = 32 };
    buf_printf(out, "{\"id\":\"quiz-%s-%05llu\"", quiz_kind_words[q->kind], (unsigned long long)i);
    json_put_key(out, "context");
    json_put_str(out, question->data ? question->data : "", end);
    json_put_member_str(out, "join", "");
    json_put_key(out, "question");
    json_put_str(out, question->data ? question->data + end : "", question->len - end);
    json_put_member_num(out, "n", ANSWER_TOKENS);
    json_put_key(out, "task");
    buf_char(out, '{');
    json_put_member_str(out, "benchmark", "quiz");
    json_put_member_str(out, "name", quiz_kind_words[q->kind]);
    json_put_member_str(out, "scorer", "ruler-all");
    json_put_key(out, "answers");
    buf_char(out, '[');
    json_put_str(out, value->data ? value->data : "", value->len);
    buf_char(out, ']');
    json_put_member_num(out, "level", (double)q->level);
    json_put_member_num(out, "chance", quiz_chance(q));
    buf_str(out, "}}\n");
}

static void put_whole(const struct quiz *q, const struct buf *question, const struct buf *answer,
                      const struct buf *value, struct buf *out)
{
    buf_char(out, '{');
    put_text(out, "question", question);
    put_text(out, "answer", answer);
    put_text(out, "value", value);
    json_put_member_str(out, "kind", quiz_kind_words[q->kind]);
    json_put_member_num(out, "level", (double)q->level);
    json_put_member_num(out, "chance", quiz_chance(q));
    buf_str(out, "}\n");
}

static void put_question(const struct quiz *q, uint64_t i, struct buf *out)
{
    struct buf question = {0}, answer = {0}, value = {0};
    size_t end = quiz_make(q, i, &question, &answer, &value);
    if (q->apart)
        put_apart(q, i, &question, end, &value, out);
    else
        put_whole(q, &question, &answer, &value, out);
    if (question.err || answer.err || value.err)
        out->err = KVF_E_NOMEM;
    buf_finish(&question);
    buf_finish(&answer);
    buf_finish(&value);
}

static int write_all(const struct request *q, struct kvf_diag *d)
{
    struct quiz quiz = {(enum quiz_kind)q->kind, q->level, (uint64_t)q->seed, q->part == 1,
                        q->question == QUESTION_UNKNOWN};
    struct buf out = {0};
    struct replace r;
    int err = quiz_check(&quiz, d);
    if (!err && !q->out)
        err = kvf_fail(d, KVF_E_ARG, "no -o FILE.jsonl");
    for (int64_t i = 0; !err && i < q->count; i++) {
        put_question(&quiz, (uint64_t)i, &out);
        err = out.err;
    }
    if (!err)
        err = replace_open(&r, q->out, d);
    if (!err) {
        replace_write(&r, out.data, out.len);
        err = replace_finish(&r, d);
    }
    buf_finish(&out);
    return err;
}

static const struct opt options[] = {
    {OPT_STR, 'o', "output", offsetof(struct request, out), "FILE.jsonl",
     "JSONL, a question a line"},
    {OPT_WORD, 0, "kind", offsetof(struct request, kind), "KIND", "type of question", "facts",
     .words = quiz_kind_words},
    {OPT_INT, 0, "level", offsetof(struct request, level), "N",
     "how hard: so many facts, so many words, or the largest number", "4", .min = 1, .max = 64},
    {OPT_WORD, 0, "part", offsetof(struct request, part), "PART",
     "questions of the two parts are never the same", "train", .words = part_words},
    {OPT_WORD, 0, "question", offsetof(struct request, question), "WHEN",
     "unknown: write the facts as a context that a method cuts before it sees the question",
     "known", .words = question_words, .min = QUESTION_KNOWN},
    {OPT_INT, 'n', "count", offsetof(struct request, count), "N", "questions", "100", .min = 1,
     .max = 1 << 20},
    {OPT_INT, 's', "seed", offsetof(struct request, seed), "S", "other questions", "0",
     .max = 9e15},
    {.type = OPT_END},
};

static int cmd_quiz(const struct command *self, void *request, int n, char **operand)
{
    struct kvf_diag d = {""};
    (void)n;
    (void)operand;
    return command_end(self, write_all(request, &d), &d);
}

const struct command command_quiz = {
    .name = "quiz",
    .group = "quality",
    .summary = "generate short questions with answers that a program can check",
    .example = "kvfate tasks quiz --kind facts --level 6 -n 50 --part test -o test.jsonl",
    .needs = "-o FILE.jsonl",
    .options = options,
    .request_bytes = sizeof(struct request),
    .run = cmd_quiz,
};
