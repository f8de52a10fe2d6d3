/* classes.h - the class of a token by its text: word, number, operator, ...
 *
 * Rules are ordered, and the first that matches a token gives its class.  The rules of a user's
 * file are first, then the built-in ones in the order of enum token_class; CLASS_WORD has no rule:
 * it is the rest.  Two kinds of rules:
 *   of a token  a regular expression searched for in the token's own text, widened to complete
 *   characters if the token is part of one: the three tokens
 *               of U+4E2D all have the text U+4E2D.  All rules of users are of this kind.
 *   of a text searched for in the text of the document; every token that shares a byte
 *               with a match has the class.  A tokenizer may cut "\frac" or "<think>" anywhere.
 * Classes need only text: which part of a run a token belongs to (prompt, answer, think) is its
 * role, a column of the trace, and no class.
 *
 *   vision       a token that stands for pictures, video or sound: <|image_pad|>, <image>
 *   think        tags that open or close a thought, <think> </think>, not the text within (text)
 *   special      <|im_end|>, <s>, [INST], and other names in angle brackets with an underscore
 *   role the text after <|im_start|>, <|start_header_id|>, <start_of_turn> up to the line's
 *                end or the next '<', at most 40 characters: user, assistant (text)
 *   whitespace only white space, or empty
 *   latex        commands such as \frac, escaped characters, _{ ^{ }{ $$ (text)
 *   number       no letter, and a \p{N}
 *   wait         words of somebody who reconsiders: wait, hmm, actually, alternatively, ...
 *   function     English articles, pronouns, prepositions, conjunctions, auxiliaries; a list of
 *                ours in classes.c
 *   operator     no letter or number, and one of \p{Sm} % ^ / or a single *; a hyphen between an
 *                end and a beginning of a term, as in "7 - 2" (text)
 *   punctuation  no letter or number, and a \p{P} or a backtick
 *   symbol       any other \p{S}: currency, pictures
 *   word         all that is left: with a letter, mostly
 *   unknown      the trace lacks the token's text
 * Letters and marks are \p{L} and \p{M}, so that all but wait and function are of any language.
 * Ill-formed bytes are no letter, number, mark or space. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <kvf/trace.h>

#include "base/table.h"

enum token_class {
    CLASS_VISION,
    CLASS_THINK,
    CLASS_SPECIAL,
    CLASS_ROLE,
    CLASS_SPACE,
    CLASS_LATEX,
    CLASS_NUMBER,
    CLASS_WAIT,
    CLASS_FUNCTION,
    CLASS_OPERATOR,
    CLASS_PUNCTUATION,
    CLASS_SYMBOL,
    CLASS_WORD,
    CLASS_UNKNOWN,
    N_BUILT_IN_CLASSES
};

enum {
    CLASSES_MOST_RULES = 32,   /* of a user's file */
    CLASSES_MOST_REGEX = 4096, /* bytes of one */
    CLASSES_MOST_NAME = 32,    /* bytes */
    CLASSES_MOST_TEXT = 256,   /* bytes of a token that rules of tokens see: its first */
    CLASSES_MOST = N_BUILT_IN_CLASSES + CLASSES_MOST_RULES, /* classes; fits a uint8_t */
};

/* The line of an analyzer's table of options, for `const char *member` of its struct. */
#define CLASSES_OPTION(type, member)                                                               \
    {                                                                                              \
        OPT_STR, 0, "classes", offsetof(type, member), "FILE",                                     \
            "JSON of names and regular expressions that come first"                                \
    }

struct classes;

/* The built-in rules, and before them the rules of the file at path, if it is not NULL.
 * The file is a JSON object {"NAME": "REGEX", ...}, or an array of such objects and of pairs
 * ["NAME", "REGEX"]; order is as in the file.  Regular expressions are of PCRE2 with UTF and UCP.
 * A NAME may repeat, or be a built-in one: then its class has more rules.  It may not be
 * "all".  KVF_OK, KVF_E_IO, KVF_E_FORMAT or KVF_E_LIMIT with a sentence, KVF_E_NOMEM. */
int classes_open(const char *path, struct classes **ret, struct kvf_diag *d);
void classes_close(struct classes *c); /* accepts NULL */

/* Classes 0 ..  classes_count - 1: the built-in ones, then the classes of the file as first
 * named. */
int classes_count(const struct classes *c);
const char *classes_name(const struct classes *c, int class); /* borrowed from c */

/* Class of each of n tokens; token i is text[end[i - 1] .. end[i]), end[-1] = 0.  A rule of a
 * user that takes more than a million steps and 2000 for each token on top (a step is an item
 * of the expression that is tried at a place) is KVF_E_LIMIT with a sentence, so that no
 * expression hangs.  KVF_OK or KVF_E_NOMEM else. */
int classes_of_text(const struct classes *c, const char *text, const size_t *end, size_t n,
                    uint8_t *ret_class, struct kvf_diag *d);

/* The same of all kvf_n_steps tokens of a trace; tokens without text are CLASS_UNKNOWN. */
int classes_of_trace(const struct classes *c, struct kvf_trace *t, uint8_t *ret_class,
                     struct kvf_diag *d);

/* Metadata: the rules of the user's file as JSON, if there are some. */
void classes_note(const struct classes *c, struct table *out);
