/* identity.h - gives methods, token classes and head types the same look in every figure.
 *
 * Methods that choose by the same evidence share a hue and differ in mark and lightness.  All pairs
 * of colour and mark differ, so they can be distinguished in grey.  No method is black or grey:
 * figures that colour methods use these for everything else. */
#pragma once

#include "render/marks.h"

/* The look of a method. */
struct identity {
    struct rgb colour;
    enum mark mark;
    double dash; /* mm; 0: solid */
};

/* Returns the look of a method by its name.  The name can have options, for example
 * "trimkv:sinks=4", which dashes the line, or a budget, for example "trimkv, budget 64". i: index
 * among the methods drawn, which gives an unknown method its look. */
struct identity identity_of_method(const char *name, int i);

/* Returns the look of the method at the end of a run's name, for example "smollm2-135m-trimkv". i:
 * index for an unknown method. */
struct identity identity_of_run(const char *name, int i);

/* Returns the colour of a token class. i: index for an unknown class. */
struct rgb identity_of_class(const char *name, int i);

/* The name, letter and colour of a head type that the rules assign. */
struct kind_identity {
    const char *name;
    char sign[4];
    struct rgb fill;
};
enum { KINDS_OF_HEADS = 11 };
/* Returns the index of a head type, or -1 if the name is unknown. */
int identity_find_kind(const char *name);
struct kind_identity identity_of_kind(int kind);
