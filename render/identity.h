/* identity.h - what has one look in every figure, however many are shown beside it: methods,
 * classes of tokens and kinds of heads.  Methods that choose by the same evidence share a hue and
 * differ in mark and lightness.  All pairs of colour and mark differ, so that they can be told
 * apart in grey.  No method is black or grey: a figure that colours methods uses black and grey for
 * everything else. */
#ifndef KVF_RENDER_IDENTITY_H
#define KVF_RENDER_IDENTITY_H

#include "render/marks.h"

struct identity {
    struct rgb colour;
    enum mark mark;
    double dash; /* mm; 0: solid */
};

/* Of a method with its options, such as "trimkv:sinks=4", whose line is dashed, or with its budget,
 * such as "trimkv, budget 64".  i: its
 * place among those drawn, for the look of a method that is not known here. */
struct identity identity_of_method(const char *name, int i);

/* The look of the method that the name of a run ends with, such as "smollm2-135m-trimkv"; i as
 * above. */
struct identity identity_of_run(const char *name, int i);

/* The colour of a class of tokens; i as above. */
struct rgb identity_of_class(const char *name, int i);

/* Kinds of heads that the rules give, by their places; -1 of a name that is none. */
struct kind_identity {
    const char *name;
    char sign[4];
    struct rgb fill;
};
enum { KINDS_OF_HEADS = 11 };
int identity_find_kind(const char *name);
struct kind_identity identity_of_kind(int kind);

#endif
