/* identity.h - gives methods, token classes and head types the same look in every figure.
 *
 * The 19 best-known methods have a hue each and keep it in every figure.  Other methods have the
 * hue of a related method, or the nearest free hue if that method is in the figure.  Their lines
 * are dashed.  The full cache, the reference, is grey.  No method is black or light grey: figures
 * that colour methods use these for everything else. */
#pragma once

#include "render/marks.h"

/* The look of a method. */
struct identity {
    struct rgb colour;
    enum mark mark;
    double dash; /* mm; 0: solid */
};

/* Gives the n methods of one figure their looks.  A name can have options, for example
 * "trimkv:sinks=4", or a budget, for example "trimkv, budget 64".  Names of one method share hue
 * and mark and differ in dashes.  Different methods differ in hue, up to 19 methods. */
void identity_of_methods(int n, const char *const *name, struct identity *ret);

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
